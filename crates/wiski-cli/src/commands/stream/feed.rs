//! Where rows come from: straight from a file, from a pipe that may pause for hours, or from memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::input::{self, Row, Rows, Table};
use crate::reading::{self, BadRows};

/// Rows on their way to a model.
pub(crate) struct Feed {
    name: String,
    from: From,
    /// Rows that were read before their turn.
    read: VecDeque<input::Result<Row>>,
    /// How many of the rows that were shown are still to come.
    shown: usize,
    /// Set by an interrupt: the stream ends in order.
    stop: Arc<AtomicBool>,
}

enum From {
    File(Rows),
    Pipe(Receiver<input::Result<Row>>),
    Memory { table: Box<Table>, next: usize },
}

impl Feed {
    /// Rows in order, or shuffled; `counted` reads all of them first, to know how many there are.
    pub(crate) fn new(
        mut rows: Rows,
        shuffle: Option<u64>,
        counted: bool,
        piped: bool,
        bad: &mut BadRows,
    ) -> Result<Self> {
        let name = rows.name().to_string();
        let stop = on_interrupt()?;
        if shuffle.is_some() || counted {
            let mut stopped = None;
            let read = Table::read(&mut rows, &mut |error| match bad.reject(error.row, error.to_string()) {
                Ok(()) => Ok(()),
                Err(message) => {
                    stopped = Some(message);
                    Err(reading::fatal(error))
                }
            });
            let mut table = match (read, stopped) {
                (_, Some(message)) => return Err(message),
                (table, None) => table?,
            };
            if let Some(seed) = shuffle {
                table.shuffle(seed);
            }
            return Ok(Self::of(name, From::Memory { table: Box::new(table), next: 0 }, stop));
        }
        let from = if piped { pipe(rows) } else { From::File(rows) };
        Ok(Self::of(name, from, stop))
    }

    fn of(name: String, from: From, stop: Arc<AtomicBool>) -> Self {
        Self { name, from, read: VecDeque::new(), shown: 0, stop }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The number of rows, where it is known.
    pub(crate) fn total(&self) -> Option<usize> {
        match &self.from {
            From::Memory { table, .. } => Some(table.len()),
            From::File(_) | From::Pipe(_) => None,
        }
    }

    pub(crate) fn progress(&self) -> Option<(u64, u64)> {
        match &self.from {
            From::File(rows) => rows.progress(),
            From::Pipe(_) => None,
            From::Memory { table, next } => Some((*next as u64, table.len() as u64)),
        }
    }

    /// Writes the inputs of rows that come next, at most so many, once all that were shown before have come: those of a
    /// file, and of a pipe those that are there already. `false` if there is nothing new.
    pub(crate) fn show_ahead(&mut self, rows: usize, inputs: &mut Vec<f64>) -> bool {
        if self.shown > 0 {
            return false;
        }
        inputs.clear();
        match &mut self.from {
            From::Memory { table, next } => {
                let width = table.width;
                let end = table.len().min(*next + rows);
                inputs.extend_from_slice(&table.inputs[*next * width..end * width]);
                self.shown = end - *next;
            }
            From::File(source) => {
                while self.read.len() < rows {
                    let mut row = Row::default();
                    let read = match source.next(&mut row) {
                        Ok(true) => Ok(row),
                        Ok(false) => break,
                        Err(error) => Err(error),
                    };
                    let is_over = matches!(&read, Err(error) if !matches!(error, input::Error::BadRow(_)));
                    self.read.push_back(read);
                    if is_over {
                        break;
                    }
                }
            }
            From::Pipe(source) => self.read.extend(source.try_iter().take(rows)),
        }
        self.read.iter().flatten().for_each(|row| inputs.extend_from_slice(&row.inputs));
        self.shown += self.read.len();
        self.shown > 0
    }

    /// The next good row; `false` at the end, and after an interrupt.
    pub(crate) fn next(&mut self, row: &mut Row, bad: &mut BadRows) -> Result<bool> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        while let Some(read) = self.read.pop_front() {
            self.shown = self.read.len();
            match read {
                Ok(next) => {
                    *row = next;
                    return Ok(true);
                }
                Err(input::Error::BadRow(error)) => bad.reject(error.row, error.to_string())?,
                Err(error) => return Err(error.into()),
            }
        }
        if let From::Memory { .. } = self.from {
            self.shown = self.shown.saturating_sub(1);
        }
        match &mut self.from {
            From::File(rows) => reading::next(rows, row, bad),
            From::Memory { table, next } => {
                if *next == table.len() {
                    return Ok(false);
                }
                table.get(*next, row);
                *next += 1;
                Ok(true)
            }
            From::Pipe(rows) => loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                match rows.recv_timeout(Duration::from_millis(100)) {
                    Ok(Ok(next)) => {
                        *row = next;
                        return Ok(true);
                    }
                    Ok(Err(input::Error::BadRow(error))) => bad.reject(error.row, error.to_string())?,
                    Ok(Err(error)) => return Err(error.into()),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(false),
                }
            },
        }
    }
}

/// An interrupt or a request to end (SIGINT, SIGTERM) ends the stream in order, with its model, report and
/// summary; a second one kills.
fn on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })?;
    Ok(stop)
}

/// Reads in a thread of its own, so that an interrupt is noticed while the pipe is silent.
fn pipe(mut rows: Rows) -> From {
    let (send, receive) = sync_channel(256);
    thread::spawn(move || {
        loop {
            let mut row = Row::default();
            let message = match rows.next(&mut row) {
                Ok(true) => Ok(row),
                Ok(false) => return,
                Err(error) => Err(error),
            };
            let last = matches!(&message, Err(error) if !matches!(error, input::Error::BadRow(_)));
            if send.send(message).is_err() || last {
                return;
            }
        }
    });
    From::Pipe(receive)
}

//! Where rows come from: straight from a file, from a pipe that may pause for hours, or from memory.

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
            return Ok(Self { name, from: From::Memory { table: Box::new(table), next: 0 }, stop });
        }
        let from = if piped { pipe(rows) } else { From::File(rows) };
        Ok(Self { name, from, stop })
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

    /// The next good row; `false` at the end, and after an interrupt.
    pub(crate) fn next(&mut self, row: &mut Row, bad: &mut BadRows) -> Result<bool> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(false);
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

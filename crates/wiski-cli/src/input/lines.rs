//! Cuts a stream of bytes into records, usually lines, without copying them.
//!
//! A record is handed out as soon as its line end has been read, so that rows can be followed live: the stream is
//! only asked for more when the buffer holds no whole record. A record beyond [`LIMIT`] is a bad row, hence memory is
//! bounded whatever the stream holds.

use std::io::{self, ErrorKind, Read};

use memchr::{memchr, memchr2};

use super::{
    bytes::Stream,
    error::{Fault, What},
};

/// The longest record, in bytes.
pub(super) const LIMIT: usize = 16 << 20;

/// A stream and the record that was cut from it last.
pub(super) struct Lines {
    stream: Stream,
    buffer: Vec<u8>,
    /// How much of the buffer holds data.
    filled: usize,
    /// The current record with its line end is `buffer[start..end]`.
    start: usize,
    end: usize,
    /// The line on which the current record begins, from 1, and how many lines it has.
    line: u64,
    height: u64,
    /// The rest of the current line has not been read and is not wanted.
    cut: bool,
    ended: bool,
}

impl Lines {
    /// Takes a stream, without its byte order mark if it has one.
    pub(super) fn new(stream: Stream) -> io::Result<Self> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let buffer = vec![0; 1 << 16];
        let (filled, start, end, line, height) = (0, 0, 0, 1, 0);
        let mut lines = Self { stream, buffer, filled, start, end, line, height, cut: false, ended: false };
        while lines.filled < MARK.len() && MARK.starts_with(lines.rest()) && lines.fill()? {}
        if lines.rest().starts_with(MARK) {
            (lines.start, lines.end) = (MARK.len(), MARK.len());
        }
        Ok(lines)
    }

    /// The first byte that is not blank, if there is one.
    pub(super) fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            if let Some(byte) = self.rest().iter().find(|byte| !byte.is_ascii_whitespace()) {
                return Ok(Some(*byte));
            }
            if self.rest().len() > LIMIT || !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Moves on to the next record that is not blank; `false` if there is none. If fields are separated by
    /// `delimiter`, those in quotation marks may contain line ends.
    pub(super) fn advance(&mut self, delimiter: Option<u8>) -> Result<bool, Fault> {
        self.pass();
        if self.cut && !self.skip_line()? {
            return Ok(false);
        }
        let mut scan = Scan::new(delimiter);
        loop {
            match scan.record_end(self.rest()) {
                Some(length) if length > LIMIT => return Err(self.give_up(What::TooLong { limit: LIMIT })),
                Some(length) => (self.end, self.height) = (self.start + length, scan.height),
                None if self.rest().len() > LIMIT => return Err(self.give_up(What::TooLong { limit: LIMIT })),
                None if self.fill()? => continue,
                None if scan.state == State::Quoted => return Err(self.give_up(What::OpenQuote)),
                None if self.start == self.filled => return Ok(false),
                None => (self.end, self.height) = (self.filled, scan.height),
            }
            if !self.record().iter().all(|&byte| byte == b' ') {
                return Ok(true);
            }
            self.pass();
            scan = Scan::new(delimiter);
        }
    }

    /// The current record without its line end.
    pub(super) fn record(&self) -> &[u8] {
        let record = &self.buffer[self.start..self.end];
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        record.strip_suffix(b"\r").unwrap_or(record)
    }

    /// The line on which the current record begins, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Makes the current record the next one.
    pub(super) fn again(&mut self) {
        (self.end, self.height) = (self.start, 0);
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.filled]
    }

    /// Leaves the current record behind.
    fn pass(&mut self) {
        self.line += self.height;
        (self.start, self.height) = (self.end, 0);
    }

    /// Ends the current record after its first line, so that reading can go on with the second.
    fn give_up(&mut self, what: What) -> Fault {
        let newline = memchr(b'\n', self.rest());
        self.end = newline.map_or(self.filled, |at| self.start + at + 1);
        (self.height, self.cut) = (1, newline.is_none());
        what.into()
    }

    /// Leaves the rest of a line behind; `false` if it was the last.
    fn skip_line(&mut self) -> io::Result<bool> {
        loop {
            let newline = memchr(b'\n', self.rest());
            self.start = newline.map_or(self.filled, |at| self.start + at + 1);
            self.end = self.start;
            if newline.is_some() {
                self.cut = false;
                return Ok(true);
            }
            if !self.fill()? {
                return Ok(false);
            }
        }
    }

    /// Reads once more; `false` at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            (self.filled, self.start, self.end) = (self.filled - self.start, 0, 0);
        }
        if self.filled == self.buffer.len() {
            self.buffer.resize(2 * self.filled, 0);
        }
        while !self.ended {
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    self.filled += n;
                    return Ok(true);
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => {
                    // A part of a line must not pass for a row if the caller should ask again.
                    (self.ended, self.filled) = (true, 0);
                    return Err(why);
                }
            }
        }
        Ok(false)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// No quotation mark has been met.
    Bare,
    FieldStart,
    Field,
    Quoted,
    /// After a quotation mark that either closes the field or is half of a doubled one.
    Closing,
}

/// Searches for the end of a record in bytes that grow from call to call.
struct Scan {
    delimiter: Option<u8>,
    state: State,
    seen: usize,
    height: u64,
}

impl Scan {
    fn new(delimiter: Option<u8>) -> Self {
        Self { delimiter, state: State::Bare, seen: 0, height: 1 }
    }

    /// The length of the first record, line end included, once the bytes hold it.
    fn record_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let Some(delimiter) = self.delimiter else {
            return self.line_end(memchr(b'\n', &bytes[self.seen..]), bytes);
        };
        if self.state == State::Bare {
            match memchr2(b'\n', b'"', &bytes[self.seen..]) {
                Some(at) if bytes[self.seen + at] == b'"' => (self.state, self.seen) = (State::FieldStart, 0),
                at => return self.line_end(at, bytes),
            }
        }
        for &byte in &bytes[self.seen..] {
            self.seen += 1;
            self.state = match (self.state, byte) {
                (State::Quoted, b'"') => State::Closing,
                (State::Quoted, _) => {
                    self.height += u64::from(byte == b'\n');
                    State::Quoted
                }
                (_, b'\n') => return Some(self.seen),
                (_, byte) if byte == delimiter => State::FieldStart,
                (State::FieldStart | State::Closing, b'"') => State::Quoted,
                _ => State::Field,
            };
        }
        None
    }

    fn line_end(&mut self, found: Option<usize>, bytes: &[u8]) -> Option<usize> {
        let end = found.map(|at| self.seen + at + 1);
        self.seen = bytes.len();
        end
    }
}

//! Where bytes come from: files and pipes, compressed by gzip or not, counted on the way.

use std::{
    io::{self, BufReader, Cursor, ErrorKind, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use flate2::bufread::MultiGzDecoder;

/// A stream of bytes.
pub(super) type Stream = Box<dyn Read + Send>;

/// How much of a stream has been read. For a compressed file both numbers count compressed bytes.
#[derive(Clone, Default)]
pub(super) struct Progress {
    read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Progress {
    /// Bytes read and bytes there are, if that is known.
    pub(super) fn get(&self) -> Option<(u64, u64)> {
        self.total.map(|total| (self.read.load(Relaxed).min(total), total))
    }
}

/// Counts what is read from `raw`, which has `total` bytes if that is known, and decompresses it if it begins as a
/// gzip file does.
pub(super) fn open(raw: impl Read + Send + 'static, total: Option<u64>) -> io::Result<(Stream, Progress)> {
    let progress = Progress { read: Arc::default(), total };
    let mut raw = Counted { raw, read: progress.read.clone() };
    let mut magic = Vec::with_capacity(2);
    raw.by_ref().take(2).read_to_end(&mut magic)?;
    let compressed = magic == [0x1f, 0x8b];
    let whole = Cursor::new(magic).chain(raw);
    let stream: Stream = if compressed {
        Box::new(Gunzip(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole))))
    } else {
        Box::new(whole)
    };
    Ok((stream, progress))
}

struct Counted<R> {
    raw: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.raw.read(buf)?;
        self.read.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

/// Says of which data a decoder's errors speak.
struct Gunzip<R>(MultiGzDecoder<R>);

impl<R: io::BufRead> Read for Gunzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|why| match why.kind() {
            ErrorKind::UnexpectedEof => io::Error::new(why.kind(), "the gzip data end too early"),
            ErrorKind::InvalidInput | ErrorKind::InvalidData => {
                io::Error::new(why.kind(), format!("the gzip data are damaged ({why})"))
            }
            _ => why,
        })
    }
}

//! A model in memory: one writer, and any number of readers that never wait for it.
//!
//! The writer is a thread with a bounded queue. It takes what has gathered there, appends all of it to the journal, forces
//! it to the disk once (group commit), and only then applies and answers each change. Now and then it publishes a
//! [`View`], from which predictions are made.
//!
//! Searches for features and refits run beside the stream on a thread of their own. The writer looks whether one is done
//! before each group of changes and, without any, every 20 ms; going on with what it found is a record of the journal.

mod writer;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::config::Config;
use crate::error::Failure;
use crate::events::Events;
use crate::history::History;
use crate::name::ModelName;
use crate::op::{Entry, Op, Reply};
use crate::served::Served;
use crate::store::{Opened, Store};
use crate::view::View;
use writer::Writer;

/// Rows in the window of the recent coverage.
const WINDOW: usize = 1000;
/// Fits go deeper than most threads.
const STACK: usize = 16 << 20;

/// What came of a change, and whether it had been done before.
pub type Done = Result<(Reply, bool), Failure>;

/// What a writer is asked.
enum Command {
    /// To carry out a change.
    Change(Change),
    /// To take in what another model has learned.
    Merge { key: Option<String>, digest: u64, other: Box<Served>, answer: oneshot::Sender<Done> },
    /// For the bytes of a snapshot, or of one that has learned nothing.
    Snapshot { is_shard: bool, answer: oneshot::Sender<Result<Vec<u8>, Failure>> },
    /// To write everything down and end.
    Close { answer: oneshot::Sender<()> },
}

/// A change on its way.
struct Change {
    entry: Entry,
    digest: u64,
    bytes: usize,
    answer: oneshot::Sender<Done>,
}

/// Counters of a model since it was loaded.
#[derive(Debug, Default)]
pub struct Counters {
    /// Rows learned.
    pub learned: AtomicU64,
    /// Rows that the model rejected.
    pub rejected: AtomicU64,
    /// Rows predicted for readers.
    pub predicted: AtomicU64,
    /// Disk syncs.
    pub syncs: AtomicU64,
    /// Requests turned away since the queue was full.
    pub turned_away: AtomicU64,
    /// Of the last rows: how many, and how many lay in their intervals.
    pub recent: AtomicU64,
    /// See `recent`.
    pub recent_inside: AtomicU64,
}

/// A model in memory.
#[derive(Debug)]
pub struct Hosted {
    /// Its name.
    pub name: ModelName,
    queue: SyncSender<Command>,
    queue_bytes: usize,
    waiting: AtomicUsize,
    waiting_bytes: AtomicUsize,
    view: RwLock<Arc<View>>,
    /// What happens to it.
    pub events: Events,
    /// Its counters.
    pub counters: Counters,
    history: Mutex<History>,
    /// When it was used last, in milliseconds of the engine's clock.
    pub used: AtomicU64,
    bytes: AtomicU64,
    searching: AtomicBool,
    ended: AtomicBool,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Change(_) => "Change",
            Self::Merge { .. } => "Merge",
            Self::Snapshot { .. } => "Snapshot",
            Self::Close { .. } => "Close",
        })
    }
}

impl Hosted {
    /// Loads a model from its folder and starts its writer.
    pub fn load(name: ModelName, folder: &Path, config: &Config) -> Result<Arc<Self>, Failure> {
        let (start, limits) = (Instant::now(), &config.limits);
        let open = || Store::open(folder, limits.keys, config.upkeep);
        let opened = catch_unwind(AssertUnwindSafe(open));
        let Ok(opened) = opened else {
            return Err(Failure::Fault(format!("{name}: its journal cannot be replayed")));
        };
        let Opened { store, served, keys, replayed } = opened.map_err(|e| Failure::Fault(e.to_string()))?;
        let schema = Arc::new(served.schema());
        let view = Arc::new(View::of(&served, Arc::clone(&schema)));
        let (queue, commands) = sync_channel(limits.queue);
        let hosted = Arc::new(Self {
            name,
            queue,
            queue_bytes: limits.queue_bytes,
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            view: RwLock::new(view),
            events: Events::default(),
            counters: Counters::default(),
            history: Mutex::default(),
            used: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            searching: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let mut writer = Writer {
            hosted: Arc::clone(&hosted),
            folder: folder.to_owned(),
            store,
            served,
            keys,
            schema,
            compact_after: limits.compact_after,
            recent: VecDeque::with_capacity(WINDOW),
            is_stale: false,
            published: Instant::now(),
            cost: Duration::ZERO,
            weighed: 0,
        };
        // What was replayed may have made more of it than its snapshot.
        let bytes = match replayed {
            0 => writer.store.snapshot_bytes(),
            _ => writer.served.to_bytes().map_or(0, |bytes| bytes.len() as u64),
        };
        writer.weigh(bytes);
        let thread = thread::Builder::new().name(format!("writer {}", hosted.name)).stack_size(STACK);
        thread.spawn(move || writer.run(&commands)).map_err(|e| Failure::Fault(e.to_string()))?;
        tracing::info!(model = %hosted.name, replayed, seconds = start.elapsed().as_secs_f64(), "loaded");
        Ok(hosted)
    }

    /// The newest view.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is kept of the last rows; held for as long as a copy takes.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that wait for the writer.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// About the memory it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether a search or refit runs beside its stream, or what it found is catching up.
    pub fn is_searching(&self) -> bool {
        self.searching.load(Ordering::Relaxed)
    }

    /// Whether its writer has ended, so that it must be loaded anew.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn send(&self, command: Command, bytes: usize) -> Result<(), Failure> {
        let full = |what: &str| {
            self.counters.turned_away.fetch_add(1, Ordering::Relaxed);
            Failure::Busy(format!("the queue of model '{}' is full{what}", self.name))
        };
        if self.waiting_bytes.load(Ordering::Relaxed) + bytes > self.queue_bytes {
            return Err(full(": too many bytes of rows"));
        }
        // Counted before it is sent: the writer counts down when it takes it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.queue.try_send(command).map_err(|error| {
            self.taken(bytes);
            match error {
                TrySendError::Full(_) => full(""),
                TrySendError::Disconnected(_) => self.reloading(),
            }
        })
    }

    fn taken(&self, bytes: usize) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn reloading(&self) -> Failure {
        Failure::Busy(format!("the model '{}' is being loaded anew", self.name))
    }

    /// Has a change carried out; when this returns, it is on the disk.
    pub async fn change(&self, op: Op, key: Option<String>) -> Done {
        let start = Instant::now();
        let (answer, done) = oneshot::channel();
        let digest = if key.is_some() { op.digest() } else { 0 };
        let bytes = op.bytes();
        self.send(Command::Change(Change { entry: Entry { key, op }, digest, bytes, answer }), bytes)?;
        let done = done.await.map_err(|_| self.reloading())?;
        self.history().took(true, start.elapsed());
        done
    }

    /// Takes in what another model has learned.
    pub async fn merge(&self, other: Box<Served>, digest: u64, key: Option<String>) -> Done {
        let (answer, done) = oneshot::channel();
        self.send(Command::Merge { key, digest, other, answer }, 0)?;
        done.await.map_err(|_| self.reloading())?
    }

    /// The bytes of a snapshot of everything acknowledged, or of a shard: the same with nothing learned.
    pub async fn snapshot(&self, is_shard: bool) -> Result<Vec<u8>, Failure> {
        let (answer, done) = oneshot::channel();
        self.send(Command::Snapshot { is_shard, answer }, 0)?;
        done.await.map_err(|_| self.reloading())?
    }

    /// Has everything written down, and ends the writer; whether it could be told to.
    pub async fn close(&self) -> bool {
        let (answer, done) = oneshot::channel();
        if self.send(Command::Close { answer }, 0).is_err() {
            return self.has_ended();
        }
        let _ = done.await;
        true
    }
}

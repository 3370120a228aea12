//! A model in memory: one writer, and any number of readers that never wait for it.
//!
//! The writer is a thread with a bounded queue. It takes what has gathered there, appends all of it to the journal, forces
//! it to the disk once (group commit), and only then applies and answers each change. Now and then it publishes a
//! [`View`], from which predictions are made.
//!
//! Searches for features and refits run beside the stream on a thread of their own. The writer looks whether one is done
//! before each group of changes and, without any, every 20 ms; going on with what it found is a record of the journal.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wiski::model::UpkeepStage;
use wiski::persist::Mark;

use crate::config::Config;
use crate::error::Failure;
use crate::events::{self, Events};
use crate::history::History;
use crate::name::ModelName;
use crate::op::{Entry, Keys, Op, Reply};
use crate::served::Served;
use crate::store::{Opened, Store};
use crate::view::{Figures, View};

/// Requests that share a disk sync.
const GROUP: usize = 512;
/// Rows that share a disk sync: the first of them waits for the last.
const GROUP_ROWS: usize = 8192;
/// Publishing takes at most one part in so many of the writer's time while changes wait.
const PUBLISHING: u32 = 5;
/// A view that takes no longer than this is made before changes are answered, if none wait behind them.
const CHEAP: Duration = Duration::from_millis(20);
/// Answers wait so long for the view that shows what they acknowledge.
const HELD_BACK: Duration = Duration::from_millis(5);
/// Rows in the window of the recent coverage.
const WINDOW: usize = 1000;
/// How often a writer without work looks whether the search beside it is done.
const LOOK: Duration = Duration::from_millis(20);
/// Rows that what a search found catches up with at a time while nobody waits.
const CAUGHT_UP: usize = 16;
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

struct Writer {
    hosted: Arc<Hosted>,
    folder: PathBuf,
    store: Store,
    served: Served,
    keys: Keys,
    schema: Arc<crate::batch::Schema>,
    compact_after: u64,
    recent: VecDeque<bool>,
    /// Whether the model has changed since the last view.
    is_stale: bool,
    published: Instant,
    /// How long the last view took to make.
    cost: Duration,
    /// Rows seen when the memory was last estimated.
    weighed: u64,
}

/// The writer cannot go on: what is in memory may differ from what is on the disk.
struct Broken;

impl Drop for Writer {
    fn drop(&mut self) {
        self.hosted.ended.store(true, Ordering::Release);
    }
}

impl Writer {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let stage = self.served.upkeep_stage();
            self.hosted.searching.store(stage != UpkeepStage::Idle, Ordering::Relaxed);
            let patience = match stage {
                UpkeepStage::Done | UpkeepStage::CatchingUp => Some(Duration::ZERO),
                _ if self.is_stale => Some(self.due()),
                UpkeepStage::Running => Some(LOOK),
                UpkeepStage::Idle => None,
            };
            let first = match patience {
                Some(patience) => commands.recv_timeout(patience),
                None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let done = match first {
                Ok(command) => self.group(command, commands),
                Err(RecvTimeoutError::Timeout) => self.idle().map(|()| true),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match done {
                Ok(true) => {}
                Ok(false) => return,
                Err(Broken) => {
                    tracing::error!(model = %self.hosted.name, "loading anew");
                    return;
                }
            }
        }
    }

    /// Carries out a command and everything that has gathered behind it; whether to go on.
    fn group(&mut self, first: Command, commands: &Receiver<Command>) -> Result<bool, Broken> {
        let mut next = Some(first);
        let (mut changes, mut rows) = (VecDeque::new(), 0);
        while let Some(command) = next.take() {
            match command {
                Command::Change(change) => {
                    self.hosted.taken(change.bytes);
                    rows += change.entry.op.rows();
                    changes.push_back(change);
                    if changes.len() < GROUP && rows < GROUP_ROWS {
                        next = commands.try_recv().ok();
                    }
                }
                Command::Merge { key, digest, other, answer } => {
                    self.hosted.taken(0);
                    self.commit(std::mem::take(&mut changes))?;
                    let done = self.merge(key, digest, &other)?;
                    let _ = answer.send(done);
                }
                Command::Snapshot { is_shard, answer } => {
                    self.hosted.taken(0);
                    self.commit(std::mem::take(&mut changes))?;
                    let bytes = if is_shard {
                        self.served.shard().and_then(|shard| shard.to_bytes())
                    } else {
                        self.served.to_bytes()
                    };
                    let _ = answer.send(bytes.map_err(Failure::from));
                }
                Command::Close { answer } => {
                    self.hosted.taken(0);
                    self.commit(std::mem::take(&mut changes))?;
                    if self.store.records() > 1 {
                        self.compact()?;
                    }
                    // Only now may another writer open the folder.
                    let name = self.hosted.name.clone();
                    self.hosted.ended.store(true, Ordering::Release);
                    tracing::info!(model = %name, "put down");
                    self.release();
                    let _ = answer.send(());
                    return Ok(false);
                }
            }
        }
        self.commit(changes)?;
        Ok(true)
    }

    /// What is done while nobody waits.
    fn idle(&mut self) -> Result<(), Broken> {
        self.attend(CAUGHT_UP)?;
        if self.is_stale && self.due() == Duration::ZERO {
            self.publish();
        }
        Ok(())
    }

    /// Takes in what a search beside the stream has found, if it is done. That is a change like any other: it stands in
    /// the journal before the rows that are learned after it, and reaches the disk with them.
    fn attend(&mut self, rows: usize) -> Result<(), Broken> {
        match self.served.upkeep_stage() {
            UpkeepStage::Done => {}
            UpkeepStage::CatchingUp if rows > 0 => {}
            _ => return Ok(()),
        }
        let mark = self.store.mark();
        let op = Op::Attend(rows);
        if let Err(error) = self.store.append(Entry { key: None, op: op.clone() }) {
            tracing::error!(model = %self.hosted.name, %error, "what a search found cannot be noted");
            return self.store.rewind(mark).map_err(|_| Broken);
        }
        if self.apply_one(&op).is_none() {
            let _ = self.store.rewind(mark);
            return Err(Broken);
        }
        Ok(())
    }

    /// Lets go of the folder before the writer itself is gone.
    fn release(&mut self) {
        self.store.release();
    }

    /// Appends changes to the journal, brings them to the disk, then applies and answers each.
    fn commit(&mut self, mut changes: VecDeque<Change>) -> Result<(), Broken> {
        self.attend(0)?;
        while !changes.is_empty() {
            let (logged, later) = self.log(changes)?;
            self.apply(logged)?;
            changes = later;
        }
        // What runs beside the stream is not part of a snapshot, and would be begun anew after it; so that may wait a bit.
        let is_quiet = self.served.upkeep_stage() == UpkeepStage::Idle;
        if self.store.rows() >= if is_quiet { self.compact_after } else { 4 * self.compact_after } {
            self.compact()?;
        }
        Ok(())
    }

    /// What is on the disk now, with the place of each in the journal; and what has the key of one of these, and is looked
    /// at after it.
    #[allow(clippy::type_complexity)]
    fn log(
        &mut self,
        changes: VecDeque<Change>,
    ) -> Result<(VecDeque<(Mark, Change)>, VecDeque<Change>), Broken> {
        let (mut logged, mut later): (VecDeque<(Mark, Change)>, _) = (VecDeque::new(), VecDeque::new());
        let start = self.store.mark();
        for mut change in changes {
            if let Some(key) = &change.entry.key {
                if let Some(done) = self.known(key, change.digest) {
                    let _ = change.answer.send(done);
                    continue;
                }
                if logged.iter().any(|(_, other)| other.entry.key.as_ref() == Some(key)) {
                    later.push_back(change);
                    continue;
                }
            }
            let mark = self.store.mark();
            match self.store.append(change.entry) {
                Ok(entry) => {
                    change.entry = entry;
                    logged.push_back((mark, change));
                }
                Err(error) => {
                    let _ = change.answer.send(Err(Failure::Fault(error.to_string())));
                }
            }
        }
        if logged.is_empty() {
            return Ok((logged, later));
        }
        self.hosted.counters.syncs.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.store.sync() {
            tracing::error!(model = %self.hosted.name, %error, "the journal cannot be brought to the disk");
            let undone = self.store.rewind(start);
            for (_, change) in logged.drain(..) {
                let _ = change.answer.send(Err(Failure::Fault(error.to_string())));
            }
            undone.map_err(|_| Broken)?;
        }
        Ok((logged, later))
    }

    /// What came of a key's change, if it has been there.
    fn known(&self, key: &str, digest: u64) -> Option<Done> {
        let (known, reply) = self.keys.get(key)?;
        if *known == digest {
            return Some(Ok((reply.clone(), true)));
        }
        Some(Err(Failure::Unprocessable("the Idempotency-Key was used for another request".into())))
    }

    fn apply(&mut self, logged: VecDeque<(Mark, Change)>) -> Result<(), Broken> {
        let start = Instant::now();
        let mut answers = Vec::with_capacity(logged.len());
        for (mark, change) in logged {
            // This one may take long, a search for example.
            if start.elapsed() > HELD_BACK {
                send_all(&mut answers);
            }
            let Change { entry, digest, answer, .. } = change;
            let Some(reply) = self.apply_one(&entry.op) else {
                // Whatever this was, it must not be met again when the journal is replayed.
                let detail = format!("model '{}' failed on a change", self.hosted.name);
                let _ = answer.send(Err(Failure::Fault(detail)));
                let undone = self.store.rewind(mark);
                send_all(&mut answers);
                if let Err(error) = undone {
                    tracing::error!(model = %self.hosted.name, %error, "the journal cannot be taken back");
                }
                // The others find the queue closed, and try again.
                return Err(Broken);
            };
            if let Some(key) = entry.key {
                self.keys.insert(key, digest, reply.clone());
            }
            answers.push((answer, Ok((reply, false))));
        }
        let is_quiet = self.hosted.waiting() == 0 && self.cost <= CHEAP;
        let is_first = !self.hosted.view().figures.ready && Figures::of(&self.served).ready;
        if is_quiet || is_first || self.due() == Duration::ZERO {
            self.publish();
        }
        send_all(&mut answers);
        Ok(())
    }

    /// Applies a change; nothing if it panicked.
    fn apply_one(&mut self, op: &Op) -> Option<Reply> {
        let Self { served, hosted, recent, .. } = self;
        let before = Figures::of(served);
        let counters = &hosted.counters;
        let mut watch = |step: &crate::served::Step| {
            if let Some(inside) = step.inside {
                if recent.len() == WINDOW
                    && let Some(oldest) = recent.pop_front()
                {
                    counters.recent_inside.fetch_sub(u64::from(oldest), Ordering::Relaxed);
                }
                recent.push_back(inside);
                counters.recent_inside.fetch_add(u64::from(inside), Ordering::Relaxed);
                counters.recent.store(recent.len() as u64, Ordering::Relaxed);
            }
            hosted.history().push(step);
            if hosted.events.has_watchers() {
                hosted.events.tell("row", events::row(step));
            }
        };
        let reply = catch_unwind(AssertUnwindSafe(|| served.apply(op, &mut watch))).ok()?;
        self.is_stale = true;
        if let Reply::Rows { taken, rejected, .. } = &reply {
            if matches!(op, Op::Learn(..) | Op::Tell(_)) {
                counters.learned.fetch_add(*taken as u64, Ordering::Relaxed);
            }
            counters.rejected.fetch_add(rejected.len() as u64, Ordering::Relaxed);
        }
        if let Some(error) = served.take_failure() {
            tracing::warn!(model = %hosted.name, %error, "a refit or a search failed; the rows are learned");
            hosted.events.tell("failure", serde_json::json!({ "error": error.to_string() }).to_string());
        }
        let now = Figures::of(served);
        let at = |figures: Figures| {
            serde_json::json!({ "row": figures.seen, "refits": figures.refits, "drifts": figures.drifts })
                .to_string()
        };
        if now.refits != before.refits || now.ready != before.ready {
            hosted.events.tell("refit", at(now));
        }
        if now.drifts != before.drifts {
            hosted.events.tell("drift", at(now));
        }
        Some(reply)
    }

    /// Merging is too large for the journal: it is safe once the snapshot is.
    fn merge(&mut self, key: Option<String>, digest: u64, other: &Served) -> Result<Done, Broken> {
        if let Some(done) = key.as_ref().and_then(|key| self.known(key, digest)) {
            return Ok(done);
        }
        let merged = catch_unwind(AssertUnwindSafe(|| self.served.merge(other)));
        let Ok(merged) = merged else { return Err(Broken) };
        if let Err(error) = merged {
            return Ok(Ok((Reply::from(error), false)));
        }
        if let Some(key) = key {
            self.keys.insert(key, digest, Reply::Done);
        }
        self.compact()?;
        self.publish();
        let seen = serde_json::json!({ "row": self.served.seen() });
        self.hosted.events.tell("merge", seen.to_string());
        Ok(Ok((Reply::Done, false)))
    }

    fn compact(&mut self) -> Result<(), Broken> {
        self.store.compact(&self.served, &self.keys).map_err(|error| {
            tracing::error!(model = %self.hosted.name, %error, folder = %self.folder.display(), "no snapshot could be written");
            Broken
        })?;
        self.weigh(self.store.snapshot_bytes());
        Ok(())
    }

    /// Estimates the memory from the size of a snapshot: the model, the image of it that readers have, and buffers.
    fn weigh(&mut self, snapshot: u64) {
        self.hosted.bytes.store(3 * snapshot + (1 << 16), Ordering::Relaxed);
        self.weighed = self.served.seen();
    }

    /// How long to wait before the next view.
    fn due(&self) -> Duration {
        (self.cost * (PUBLISHING - 1)).saturating_sub(self.published.elapsed())
    }

    fn publish(&mut self) {
        let start = Instant::now();
        let (served, schema) = (&self.served, Arc::clone(&self.schema));
        let view = catch_unwind(AssertUnwindSafe(|| View::of(served, schema)));
        if let Ok(view) = view {
            *self.hosted.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
        }
        (self.is_stale, self.published, self.cost) = (false, Instant::now(), start.elapsed());
        // A model grows with its first rows; whenever they have doubled it is looked at.
        if self.served.seen() >= 2 * self.weighed.max(16)
            && let Ok(bytes) = self.served.to_bytes()
        {
            self.weigh(bytes.len() as u64);
        }
    }
}

fn send_all(answers: &mut Vec<(oneshot::Sender<Done>, Done)>) {
    for (answer, done) in answers.drain(..) {
        // Whoever has stopped waiting does not mind.
        let _ = answer.send(done);
    }
}

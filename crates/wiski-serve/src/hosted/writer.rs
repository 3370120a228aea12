//! The writer of a model: takes what has gathered, writes it down, carries it out and answers.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wiski::model::UpkeepStage;
use wiski::persist::Mark;

use super::{Change, Command, Done, Hosted, WINDOW};
use crate::error::Failure;
use crate::events;
use crate::op::{Entry, Keys, Op, Reply};
use crate::served::Served;
use crate::store::Store;
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
/// How often a writer without work looks whether the search beside it is done.
const LOOK: Duration = Duration::from_millis(20);
/// Rows that what a search found catches up with at a time while nobody waits.
const CAUGHT_UP: usize = 16;

/// The one that changes a model: it owns it, its store and the keys of what was done.
pub(super) struct Writer {
    pub(super) hosted: Arc<Hosted>,
    pub(super) folder: PathBuf,
    pub(super) store: Store,
    pub(super) served: Served,
    pub(super) keys: Keys,
    pub(super) schema: Arc<crate::batch::Schema>,
    pub(super) compact_after: u64,
    pub(super) recent: VecDeque<bool>,
    /// Whether the model has changed since the last view.
    pub(super) is_stale: bool,
    pub(super) published: Instant,
    /// How long the last view took to make.
    pub(super) cost: Duration,
    /// Rows seen when the memory was last estimated.
    pub(super) weighed: u64,
}

/// The writer cannot go on: what is in memory may differ from what is on the disk.
struct Broken;

impl Drop for Writer {
    fn drop(&mut self) {
        self.hosted.ended.store(true, Ordering::Release);
    }
}

impl Writer {
    /// Carries out what comes until it is told to end or cannot go on.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
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
    pub(super) fn weigh(&mut self, snapshot: u64) {
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

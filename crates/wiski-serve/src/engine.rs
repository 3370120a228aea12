//! All models of a folder: loaded when they are needed, put down when memory is short.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use wiski::persist::{FileLock, is_snapshot};

use crate::config::Config;
use crate::error::Failure;
use crate::hosted::Hosted;
use crate::metrics::Metrics;
use crate::name::ModelName;
use crate::served::Served;
use crate::store::{self, Store, io_error};

/// How often models are put down that are too many for the memory.
const TIDYING: Duration = Duration::from_secs(1);

/// The place of a model: whether it is loaded or not.
#[derive(Debug, Default)]
struct Slot {
    /// Held while the model is loaded or put down, so that only one does.
    gate: tokio::sync::Mutex<()>,
    hosted: RwLock<Option<Arc<Hosted>>>,
}

impl Slot {
    fn get(&self) -> Option<Arc<Hosted>> {
        let hosted = self.hosted.read().unwrap_or_else(PoisonError::into_inner);
        hosted.as_ref().filter(|hosted| !hosted.has_ended()).cloned()
    }

    fn set(&self, hosted: Option<Arc<Hosted>>) {
        *self.hosted.write().unwrap_or_else(PoisonError::into_inner) = hosted;
    }
}

/// All models of a folder.
#[derive(Debug)]
pub struct Engine {
    /// The settings.
    pub config: Config,
    /// The figures of the server.
    pub metrics: Metrics,
    folder: PathBuf,
    slots: RwLock<BTreeMap<ModelName, Arc<Slot>>>,
    /// Held while models are created and deleted, so that their number is known.
    register: tokio::sync::Mutex<()>,
    start: Instant,
    tidied: AtomicU64,
    stop: watch::Sender<bool>,
    _lock: FileLock,
}

impl Engine {
    /// The models of a folder, which is made if it is not there. A second server is kept out.
    pub fn open(config: Config) -> wiski::Result<Arc<Self>> {
        let folder = config.models.clone();
        fs::create_dir_all(&folder).map_err(|e| io_error(&folder, e))?;
        let lock = FileLock::acquire(&folder.join("server"), Duration::from_secs(5))?;
        let mut slots = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(|e| io_error(&folder, e))?.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(".new-") || name.starts_with(".deleted-") {
                // What a crash has left half done.
                let _ = fs::remove_dir_all(&path);
            } else if path.is_dir() && store::holds_model(&path) {
                slots.extend(ModelName::parse(&name).map(|name| (name, Arc::default())));
            } else if let Some(name) = imported(&path, &name) {
                slots.insert(name, Arc::default());
            }
        }
        Ok(Arc::new(Self {
            config,
            metrics: Metrics::default(),
            folder,
            slots: RwLock::new(slots),
            register: tokio::sync::Mutex::default(),
            start: Instant::now(),
            tidied: AtomicU64::new(0),
            stop: watch::Sender::new(false),
            _lock: lock,
        }))
    }

    fn slot(&self, name: &ModelName) -> Option<Arc<Slot>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn all(&self) -> Vec<(ModelName, Arc<Slot>)> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.iter().map(|(name, slot)| (name.clone(), Arc::clone(slot))).collect()
    }

    /// The names of all models, and those in memory with what they are.
    pub fn list(&self) -> Vec<(ModelName, Option<Arc<Hosted>>)> {
        self.all().into_iter().map(|(name, slot)| (name, slot.get())).collect()
    }

    /// Milliseconds since the start.
    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// A model, loaded if it is not in memory.
    pub async fn model(self: &Arc<Self>, name: &str) -> Result<Arc<Hosted>, Failure> {
        let missing = || Failure::NotFound("there is no such model".into());
        let name = ModelName::parse(name).ok_or_else(missing)?;
        let slot = self.slot(&name).ok_or_else(missing)?;
        let hosted = match slot.get() {
            Some(hosted) => hosted,
            None => self.load(&name, &slot).await?,
        };
        hosted.used.store(self.now(), Ordering::Relaxed);
        Ok(hosted)
    }

    async fn load(self: &Arc<Self>, name: &ModelName, slot: &Arc<Slot>) -> Result<Arc<Hosted>, Failure> {
        let gate = slot.gate.lock().await;
        if let Some(hosted) = slot.get() {
            return Ok(hosted);
        }
        if self.is_stopping() {
            return Err(Failure::Stopping);
        }
        if self.slot(name).is_none() {
            return Err(Failure::NotFound("there is no such model".into()));
        }
        let (engine, own) = (Arc::clone(self), name.clone());
        let load = move || {
            let folder = engine.folder.join(own.as_str());
            if !folder.exists() {
                let file = engine.folder.join(format!("{own}.wiski"));
                let served = Served::load(&file).map_err(|e| Failure::Fault(e.to_string()))?;
                Store::create(&folder, &served).map_err(|e| Failure::Fault(e.to_string()))?;
            }
            Hosted::load(own, &folder, &engine.config)
        };
        let hosted = tokio::task::spawn_blocking(load).await.map_err(|e| Failure::Fault(e.to_string()))??;
        hosted.used.store(self.now(), Ordering::Relaxed);
        slot.set(Some(Arc::clone(&hosted)));
        drop(gate);
        self.tidy_soon();
        Ok(hosted)
    }

    /// Makes a new model.
    pub async fn create(self: &Arc<Self>, name: &str, served: Served) -> Result<Arc<Hosted>, Failure> {
        let what = "a name has 1 to 64 letters, digits, '-', '_' and '.', and begins with a letter or digit";
        let name = ModelName::parse(name).ok_or_else(|| Failure::Unprocessable(what.into()))?;
        let _register = self.register.lock().await;
        if self.slot(&name).is_some() {
            return Err(Failure::Conflict(format!("there is a model '{name}' already")));
        }
        let count = self.slots.read().unwrap_or_else(PoisonError::into_inner).len();
        let most = self.config.limits.models;
        if count >= most {
            return Err(Failure::Conflict(format!("there are {most} models, and no more are allowed")));
        }
        let folder = self.folder.join(name.as_str());
        let make = move || Store::create(&folder, &served).map_err(|e| Failure::Fault(e.to_string()));
        tokio::task::spawn_blocking(make).await.map_err(|e| Failure::Fault(e.to_string()))??;
        self.slots.write().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), Arc::default());
        self.model(name.as_str()).await
    }

    /// Deletes a model with everything it has learned.
    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<(), Failure> {
        let missing = || Failure::NotFound("there is no such model".into());
        let name = ModelName::parse(name).ok_or_else(missing)?;
        let _register = self.register.lock().await;
        let slot = self.slot(&name).ok_or_else(missing)?;
        let _gate = slot.gate.lock().await;
        if let Some(hosted) = slot.get() {
            while !hosted.close().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            slot.set(None);
        }
        self.slots.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
        let (folder, gone) = (self.folder.join(name.as_str()), self.folder.join(format!(".deleted-{name}")));
        let file = self.folder.join(format!("{name}.wiski"));
        let remove = move || {
            if file.is_file() {
                fs::remove_file(&file).map_err(|e| io_error(&file, e))?;
            }
            if folder.exists() {
                let _ = fs::remove_dir_all(&gone);
                fs::rename(&folder, &gone).map_err(|e| io_error(&folder, e))?;
                fs::remove_dir_all(&gone).map_err(|e| io_error(&gone, e))?;
            }
            Ok::<(), wiski::Error>(())
        };
        let removed = tokio::task::spawn_blocking(remove).await;
        removed.map_err(|e| Failure::Fault(e.to_string()))?.map_err(|e| Failure::Fault(e.to_string()))
    }

    /// Puts models down that are too many for the memory, but not right now.
    fn tidy_soon(self: &Arc<Self>) {
        let now = self.now();
        let last = self.tidied.load(Ordering::Relaxed);
        let is_due = last == 0 || now.saturating_sub(last) >= TIDYING.as_millis() as u64;
        if is_due
            && self.tidied.compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let engine = Arc::clone(self);
            tokio::spawn(async move { engine.tidy().await });
        }
    }

    /// Puts down the models used least recently, until the others fit the memory. Those that are at work stay.
    pub async fn tidy(&self) {
        let mut loaded: Vec<_> =
            self.all().into_iter().filter_map(|(_, slot)| slot.get().map(|hosted| (slot, hosted))).collect();
        let mut total: u64 = loaded.iter().map(|(_, hosted)| hosted.bytes()).sum();
        loaded.sort_by_key(|(_, hosted)| hosted.used.load(Ordering::Relaxed));
        // The one used last stays, however large it is.
        loaded.pop();
        for (slot, hosted) in loaded {
            if total <= self.config.limits.memory {
                return;
            }
            if hosted.waiting() > 0 || hosted.events.has_watchers() || hosted.is_searching() {
                continue;
            }
            let _gate = slot.gate.lock().await;
            if hosted.close().await {
                slot.set(None);
                total -= hosted.bytes();
                self.metrics.put_down.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Looks after the memory until the engine is gone.
    pub async fn keep_tidy(engine: std::sync::Weak<Self>) {
        loop {
            tokio::time::sleep(TIDYING).await;
            match engine.upgrade() {
                Some(engine) => engine.tidy().await,
                None => return,
            }
        }
    }

    /// Whether the server is stopping.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Tells when the server begins to stop.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Begins to stop: streams of events end, and no model is loaded any more.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Has all models written down and put away; none is loaded any more.
    pub async fn close(&self) {
        self.stop();
        for (_, slot) in self.all() {
            let _gate = slot.gate.lock().await;
            if let Some(hosted) = slot.get() {
                while !hosted.close().await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                slot.set(None);
            }
        }
    }
}

/// The name of a model that lies in the folder as a file of the command line.
fn imported(path: &Path, name: &str) -> Option<ModelName> {
    ModelName::parse(name.strip_suffix(".wiski")?).filter(|_| path.is_file() && is_snapshot(path))
}

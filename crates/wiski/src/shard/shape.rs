//! The shape of a model: all that it is apart from the rows that it has learned.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result, length};
use crate::grid::Growth;
use crate::model::{ModelShape, NoiseModel, OnlineRegressor, Settings};
use crate::persist::{self, Columns, Model, Persistent, Stored};

/// Scales, features, grids and inducing points of a model, with the hyperparameters to start from. A copy costs
/// nothing.
#[derive(Debug, Clone)]
pub struct Shape(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    saved: SavedShape,
    /// How far the grids may grow.
    room: Growth,
    /// Equal for equal shapes.
    id: u64,
    /// As it goes to files and along with shards.
    bytes: Vec<u8>,
}

/// A shape as it stands in a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedShape {
    columns: Columns,
    model: ModelShape,
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.saved.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::whole(SavedShape::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Persistent for Shape {
    const KIND: &'static str = "shape";
}

impl Shape {
    /// Learns a shape on a sample of rows, given one after the other, with their noise variances where noise is known:
    /// what a model of these rows finds, with features that no longer change. The sample should show the range of every
    /// column; grids grow to rows further out, within limits.
    pub fn learn(
        columns: Columns,
        x: &[f64],
        y: &[f64],
        noise: Option<&[f64]>,
        settings: Settings,
    ) -> Result<Self> {
        let d = columns.inputs.len();
        let settings = Settings { half_life: None, ..settings };
        let is_known = settings.noise == NoiseModel::Known;
        let mut model = OnlineRegressor::new(d, settings)?;
        length("x", y.len() * d, x.len())?;
        length("noise", if is_known { y.len() } else { 0 }, noise.map_or(0, <[f64]>::len))?;
        for (row, x) in x.chunks_exact(d).enumerate() {
            let learned = match noise {
                Some(noise) => model.observe_noisy(x, y[row], noise[row]),
                None => model.observe(x, y[row]),
            };
            learned.map_err(|error| error.in_row(row))?;
        }
        model.finish_search()?;
        model.freeze_features()?;
        Self::of(&Stored::new(columns, Model::Regressor(Box::new(model)))?)
    }

    /// The shape of a model of numbers whose features no longer change.
    pub fn of(stored: &Stored) -> Result<Self> {
        let Model::Regressor(model) = &stored.model else {
            let reason = "statistics of classes cannot be gathered apart from a model";
            return Err(Error::Unsupported { operation: "a shape", reason });
        };
        Self::whole(SavedShape { columns: stored.columns.clone(), model: ModelShape::of(model)? })
    }

    fn whole(saved: SavedShape) -> Result<Self> {
        length("input columns", saved.model.input_dim, saved.columns.inputs.len())?;
        let room = saved.model.room();
        // Bytes are the same for the same shape, whichever way it came.
        let body = rmp_serde::to_vec_named(&saved);
        let body = body.map_err(|e| Error::File { path: "the shape".into(), reason: e.to_string() })?;
        let (id, bytes) = (xxh3_64(&body), persist::framed(Self::KIND, &body));
        Ok(Self(Arc::new(Parts { saved, room, id, bytes })))
    }

    /// The bytes of a file of the kind `shape`.
    pub fn to_bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// The shape in the bytes of a file: one of the kind `shape`, or the shape of a `model`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        match persist::kind(bytes)?.as_str() {
            Stored::KIND => Self::of(&persist::from_bytes(bytes)?),
            _ => persist::from_bytes(bytes),
        }
    }

    /// The names of the columns.
    pub fn columns(&self) -> &Columns {
        &self.0.saved.columns
    }

    /// The number of inputs.
    pub fn input_dim(&self) -> usize {
        self.0.saved.model.input_dim
    }

    /// Whether every row must come with its noise variance.
    pub fn knows_noise(&self) -> bool {
        self.0.saved.model.knows_noise()
    }

    /// A number that is the same for shapes that are the same.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub(super) fn model(&self) -> &ModelShape {
        &self.0.saved.model
    }

    pub(super) fn room(&self) -> &Growth {
        &self.0.room
    }
}

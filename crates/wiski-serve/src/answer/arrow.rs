//! Predictions as one record batch of an Arrow IPC stream: the columns of the CSV, null where nothing was said.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;

use crate::error::Failure;
use crate::op::{ClassesSaid, Said};

/// The bytes of the stream.
pub(super) fn stream(said: &Said) -> Result<Vec<u8>, Failure> {
    let write = || -> Result<Vec<u8>, ArrowError> {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns(said).into_iter().map(|(name, column)| (name, column, true)),
        )?;
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema())?;
        writer.write(&batch)?;
        writer.finish()?;
        drop(writer);
        Ok(bytes)
    };
    write().map_err(|e| Failure::Fault(e.to_string()))
}

fn numbers(values: impl Iterator<Item = f64>) -> ArrayRef {
    Arc::new(values.map(|v| v.is_finite().then_some(v)).collect::<Float64Array>())
}

fn columns(said: &Said) -> Vec<(String, ArrayRef)> {
    match said {
        Said::Numbers(said) => {
            said.columns().map(|(name, list)| (name.to_owned(), numbers(list.iter().copied()))).collect()
        }
        Said::Classes(ClassesSaid { labels, best, probabilities, .. }) => {
            let label = best.iter().map(|best| best.map(|best| labels[best].as_str()));
            let mut columns: Vec<(String, ArrayRef)> =
                vec![("label".into(), Arc::new(label.collect::<StringArray>()))];
            for (k, name) in labels.iter().enumerate() {
                let share = probabilities.iter().skip(k).step_by(labels.len().max(1));
                columns.push((format!("p_{name}"), numbers(share.copied())));
            }
            columns
        }
    }
}

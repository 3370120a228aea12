//! From bodies to rows: JSON (plain rows, or tensors of the Open Inference Protocol), NDJSON, CSV and Arrow IPC.
//!
//! Cells go from the text into the numbers of a [`Batch`] without a tree in between, so a body takes about as much memory
//! again, not a multiple.

#[cfg(feature = "arrow")]
mod arrow;
mod csv;
mod json;
mod tensors;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;

use crate::batch::{Batch, Builder, Schema};
use crate::error::Failure;

/// Rows and what was said about them.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// The rows.
    pub(crate) batch: Batch,
    /// What else was said.
    pub(crate) about: About,
}

/// What a body says beside its rows.
#[derive(Debug, Default)]
pub(crate) struct About {
    /// Whether rows came as tensors, and the answer is to have some.
    pub(crate) is_tensors: bool,
    /// The name of the request, to be repeated in the answer.
    pub(crate) id: Option<String>,
    /// The share of targets that intervals are to hold.
    pub(crate) level: Option<f64>,
    /// The tensors that the answer is to have; all, if none are named.
    pub(crate) outputs: Vec<String>,
}

/// The kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One JSON value.
    Json,
    /// One JSON value a line.
    Lines,
    /// Comma-separated values under a line of names.
    Csv,
    /// A stream of Arrow IPC.
    Arrow,
    /// A snapshot.
    Snapshot,
}

/// The type of streams of Arrow IPC.
pub(crate) const ARROW: &str = "application/vnd.apache.arrow.stream";

/// The kind of body that headers announce; without any it is JSON, and so is what curl calls a form.
pub(crate) fn kind(headers: &HeaderMap) -> Result<Kind, Failure> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(Kind::Json) };
    let text = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match text.to_ascii_lowercase().as_str() {
        "application/json" | "application/x-www-form-urlencoded" | "" => Ok(Kind::Json),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Kind::Lines),
        "text/csv" => Ok(Kind::Csv),
        ARROW => Ok(Kind::Arrow),
        // The protocol's binary tensors follow their JSON under this type; so do snapshots.
        "application/octet-stream" if headers.contains_key("inference-header-content-length") => {
            Ok(Kind::Json)
        }
        "application/octet-stream" => Ok(Kind::Snapshot),
        _ => Err(Failure::MediaType(format!(
            "a body is application/json, application/x-ndjson, text/csv or {ARROW}"
        ))),
    }
}

/// The rows of a body; whether they are to be learned, and how many there may be.
pub(crate) fn rows(
    headers: &HeaderMap,
    body: &[u8],
    schema: &Schema,
    learns: bool,
    most: usize,
) -> Result<Decoded, Failure> {
    let mut builder = Builder::new(schema, learns, most);
    let about = match kind(headers)? {
        Kind::Json => {
            let head = json_bytes(headers, body)?;
            json::read(&body[..head], &body[head..], &mut builder)?
        }
        Kind::Lines => json::read_lines(body, &mut builder)?,
        Kind::Csv => csv::read(body, &mut builder)?,
        #[cfg(feature = "arrow")]
        Kind::Arrow => arrow::read(body, &mut builder)?,
        #[cfg(not(feature = "arrow"))]
        Kind::Arrow => {
            return Err(Failure::MediaType("this server was built without Arrow (feature `arrow`)".into()));
        }
        Kind::Snapshot => return Err(Failure::MediaType("rows are not application/octet-stream".into())),
    };
    Ok(Decoded { batch: builder.finish()?, about })
}

/// How many bytes of the body are JSON; binary tensors follow.
fn json_bytes(headers: &HeaderMap, body: &[u8]) -> Result<usize, Failure> {
    let Some(value) = headers.get("inference-header-content-length") else { return Ok(body.len()) };
    let length = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    length.filter(|length| *length <= body.len()).ok_or_else(|| {
        Failure::Malformed("Inference-Header-Content-Length is not the length of the JSON in the body".into())
    })
}

/// A body that is a text.
fn text(body: &[u8]) -> Result<&str, Failure> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    std::str::from_utf8(body).map_err(|_| Failure::Malformed("the body is not UTF-8".into()))
}

//! Events of a model as they happen, by the protocol of server-sent events.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::Call;
use crate::answer::response;
use crate::error::Failure;

/// Something is sent at least so often, so that a broken connection shows.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Rows shown in a second, unless told otherwise.
const RATE: u32 = 200;

pub(super) async fn events(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    let rate = call.parameter("rate")?.unwrap_or(RATE).clamp(1, 10_000);
    let (mut events, mut stopping) = (hosted.events.watch(), call.engine.stopping());
    let (sender, receiver) = mpsc::channel::<Bytes>(64);
    let rows = hosted.view().figures.seen;
    drop(hosted);
    tokio::spawn(async move {
        let hello = format!("retry: 1000\nevent: hello\ndata: {{\"rows\":{rows}}}\n\n");
        if sender.send(hello.into()).await.is_err() {
            return;
        }
        let mut thinning = Thinning { rate, second: Instant::now(), shown: 0, missed: 0 };
        loop {
            let text = tokio::select! {
                event = events.recv() => match event {
                    Ok(event) if event.name == "row" => match thinning.show() {
                        Some(missed) => format!("{missed}event: row\ndata: {}\n\n", event.data),
                        None => continue,
                    },
                    Ok(event) => format!("event: {}\ndata: {}\n\n", event.name, event.data),
                    Err(RecvError::Lagged(rows)) => {
                        thinning.missed += rows;
                        continue;
                    }
                    // The model is put down or deleted; a client that comes again has it loaded.
                    Err(RecvError::Closed) => return,
                },
                () = tokio::time::sleep(HEARTBEAT) => ":\n\n".into(),
                () = sender.closed() => return,
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            if sender.send(text.into()).await.is_err() {
                return;
            }
        }
    });
    Ok(response(StatusCode::OK, "text/event-stream", Body::new(Stream(receiver))))
}

/// Shows so many rows a second and counts the others.
struct Thinning {
    rate: u32,
    second: Instant,
    shown: u32,
    missed: u64,
}

impl Thinning {
    /// Whether to show a row, and what to say about those that were not shown before it.
    fn show(&mut self) -> Option<String> {
        if self.second.elapsed() >= Duration::from_secs(1) {
            (self.second, self.shown) = (Instant::now(), 0);
        }
        if self.shown >= self.rate {
            self.missed += 1;
            return None;
        }
        self.shown += 1;
        Some(match std::mem::take(&mut self.missed) {
            0 => String::new(),
            missed => format!("event: missed\ndata: {{\"rows\":{missed}}}\n\n"),
        })
    }
}

/// A body that comes bit by bit.
struct Stream(mpsc::Receiver<Bytes>);

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

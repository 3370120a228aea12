//! What can go wrong with a request, and the status that says so.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The request cannot be understood.
    #[error("{0}")]
    Malformed(String),
    /// It names no known token.
    #[error("a token is needed: Authorization: Bearer TOKEN")]
    Stranger,
    /// Its token does not allow it, or it comes from the page of somebody else.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// The path is there, but not for this method.
    #[error("this path has no such method")]
    Method,
    /// What is there already, or not yet, is in the way.
    #[error("{0}")]
    Conflict(String),
    /// The model is in its warm-up.
    #[error("the model is not ready: its warm-up is not over")]
    NotReady,
    /// The body is longer, or has more rows, than is allowed.
    #[error("{0}")]
    TooLarge(String),
    /// The body is of a kind that is not read.
    #[error("{0}")]
    MediaType(String),
    /// The request makes no sense for this model.
    #[error("{0}")]
    Unprocessable(String),
    /// The writer of the model, or the server, has too much to do.
    #[error("{0}")]
    Busy(String),
    /// The answer was not there in time; what was asked may still be done.
    #[error("not done in time; it may still be done: retry with the same Idempotency-Key")]
    Late,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// A fault of the server or its disk.
    #[error("{0}")]
    Fault(String),
}

impl Failure {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Stranger => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict(_) | Self::NotReady => StatusCode::CONFLICT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Late | Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Self::Fault(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<wiski::Error> for Failure {
    /// Files are the server's, everything else is the request's.
    fn from(error: wiski::Error) -> Self {
        match error {
            wiski::Error::NotReady { .. } => Self::NotReady,
            wiski::Error::File { .. } | wiski::Error::Io { .. } => Self::Fault(error.to_string()),
            _ => Self::Unprocessable(error.to_string()),
        }
    }
}

impl IntoResponse for Failure {
    /// The status, and `{"error": …}` as the Open Inference Protocol has it.
    fn into_response(self) -> Response {
        // Where the server keeps its files is its own business.
        let message = match &self {
            Self::Fault(detail) => {
                tracing::error!(detail, "fault");
                "a fault of the server; its log says more".into()
            }
            other => other.to_string(),
        };
        let body = serde_json::json!({ "error": message }).to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self {
            Self::Stranger => {
                let schemes = HeaderValue::from_static("Basic realm=\"wiski\", charset=\"UTF-8\", Bearer");
                headers.insert(WWW_AUTHENTICATE, schemes);
            }
            Self::Busy(_) | Self::Late | Self::Stopping => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

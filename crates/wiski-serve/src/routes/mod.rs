//! The routes: a table, from which the router and its description are made. What happens to every request happens in
//! `dispatch`, in this order: origin, token, scope, concurrency, body, handler, figures.

// All handlers are async, whether or not they wait.
#[allow(clippy::unused_async, clippy::unnecessary_wraps)]
mod about;
mod events;
#[allow(clippy::unused_async, clippy::unnecessary_wraps)]
mod models;
mod rows;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{RawPathParams, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use tokio::sync::Semaphore;

use crate::auth::Scope;
use crate::engine::Engine;
use crate::error::Failure;

/// A request, as handlers see it.
#[derive(Debug)]
pub(crate) struct Call {
    engine: Arc<Engine>,
    path: HashMap<String, String>,
    query: HashMap<String, String>,
    headers: HeaderMap,
    body: Bytes,
}

type Answer = Pin<Box<dyn Future<Output = Result<Response, Failure>> + Send>>;

/// A path with a method, and what it is for.
#[derive(Debug)]
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path, with names in braces.
    pub path: &'static str,
    /// What a token must allow.
    pub scope: Scope,
    /// Its name in the description.
    pub id: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// The kind of body it takes.
    pub takes: Takes,
    handler: fn(Call) -> Answer,
}

/// The bodies that routes take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// None.
    Nothing,
    /// Rows.
    Rows,
    /// The description of a model.
    Description,
    /// The description of a model, or a snapshot.
    DescriptionOrSnapshot,
    /// A snapshot.
    Snapshot,
    /// How many points.
    Count,
}

macro_rules! routes {
    ($($method:ident $path:literal $scope:ident $takes:ident $module:ident::$handler:ident $summary:literal;)*) => {
        /// All routes.
        pub static ROUTES: &[Route] = &[$(Route {
            method: stringify!($method),
            path: $path,
            scope: Scope::$scope,
            id: stringify!($handler),
            summary: $summary,
            takes: Takes::$takes,
            handler: |call| Box::pin($module::$handler(call)),
        }),*];
    };
}

routes! {
    GET "/" Read Nothing about::page "The page.";
    GET "/assets/{file}" Read Nothing about::asset "A part of the page.";
    GET "/openapi.json" Read Nothing about::openapi "This description.";
    GET "/metrics" Read Nothing about::metrics "Figures for Prometheus.";
    GET "/v2" Read Nothing about::server "What this server is.";
    GET "/v2/health/live" Read Nothing about::live "Whether the server answers.";
    GET "/v2/health/ready" Read Nothing about::ready "Whether the server takes requests.";
    GET "/v2/models" Read Nothing models::list "The models.";
    POST "/v2/models" Admin Description models::create "Make a model.";
    POST "/v2/repository/index" Read Nothing models::index "The models, as the repository extension lists them.";
    GET "/v2/models/{model}" Read Nothing models::metadata "The columns and tensors of a model.";
    PUT "/v2/models/{model}" Admin DescriptionOrSnapshot models::put "Make a model of this name, or bring one back from a snapshot.";
    DELETE "/v2/models/{model}" Admin Nothing models::delete "Delete a model with everything it has learned.";
    GET "/v2/models/{model}/ready" Read Nothing models::model_ready "Whether the model predicts: its warm-up is over.";
    GET "/v2/models/{model}/versions/{version}" Read Nothing models::version_metadata "The same for a version; there is one, 1.";
    GET "/v2/models/{model}/versions/{version}/ready" Read Nothing models::version_ready "Whether the model predicts.";
    GET "/v2/models/{model}/stats" Read Nothing models::stats "The figures of a model.";
    GET "/v2/models/{model}/figures" Read Nothing models::figures "The figures that can be drawn of a model, and how to read them.";
    GET "/v2/models/{model}/figures/{figure}" Read Nothing models::figure "A figure as SVG; with ?theme=dark for dark pages.";
    GET "/v2/models/{model}/snapshot" Admin Nothing models::snapshot "The model as a file; with ?shard=true the same with nothing learned.";
    GET "/v2/models/{model}/events" Read Nothing events::events "Rows, refits and drift as they happen (server-sent events).";
    POST "/v2/models/{model}/infer" Read Rows rows::infer "Predict rows.";
    POST "/v2/models/{model}/versions/{version}/infer" Read Rows rows::version_infer "Predict rows.";
    POST "/v2/models/{model}/learn" Learn Rows rows::learn "Learn rows; they are on the disk when the answer comes.";
    POST "/v2/models/{model}/step" Learn Rows rows::step "Predict rows one after the other, each before it is learned.";
    POST "/v2/models/{model}/forget" Learn Rows rows::forget "Un-learn rows.";
    POST "/v2/models/{model}/ask" Learn Count rows::ask "Propose points to try next.";
    POST "/v2/models/{model}/tell" Learn Rows rows::tell "Learn what trials gave; one without a value failed.";
    POST "/v2/models/{model}/refit" Learn Nothing rows::refit "Fit the hyperparameters to everything learned.";
    POST "/v2/models/{model}/freeze" Learn Nothing rows::freeze "End learning of features: then models can be merged and rows un-learned.";
    POST "/v2/models/{model}/merge" Learn Snapshot models::merge "Take in what the model in a snapshot has learned.";
}

/// What all requests share.
#[derive(Debug, Clone)]
struct App {
    engine: Arc<Engine>,
    permits: Arc<Semaphore>,
}

/// The router of an engine.
pub fn app(engine: Arc<Engine>) -> Router {
    let permits = Arc::new(Semaphore::new(engine.config.limits.requests));
    let mut router = Router::new();
    for route in ROUTES {
        let filter = match route.method {
            "POST" => MethodFilter::POST,
            "PUT" => MethodFilter::PUT,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        let handler = move |State(app): State<App>, path: RawPathParams, request: Request| async move {
            let path = path.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            dispatch(app, Ok(route), path, request).await
        };
        router = router.route(route.path, on(filter, handler));
    }
    let missing = |State(app): State<App>, request: Request| async move {
        dispatch(app, Err(Failure::NotFound("there is no such path".into())), HashMap::new(), request).await
    };
    let method = |State(app): State<App>, request: Request| async move {
        dispatch(app, Err(Failure::Method), HashMap::new(), request).await
    };
    router.fallback(missing).method_not_allowed_fallback(method).with_state(App { engine, permits })
}

/// Counts a request while it is being answered.
struct Active<'a>(&'a AtomicU64);

impl<'a> Active<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers a request, whatever it is.
async fn dispatch(
    app: App,
    route: Result<&'static Route, Failure>,
    path: HashMap<String, String>,
    request: Request,
) -> Response {
    let start = Instant::now();
    let _active = Active::new(&app.engine.metrics.active);
    let method = match request.method().as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        _ => "other",
    };
    let name = route.as_ref().map_or("unknown", |route| route.path);
    let answer = tokio::time::timeout(app.engine.config.limits.time, answer(&app, route, path, request));
    let answer = answer.await.unwrap_or(Err(Failure::Late));
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'"),
    );
    let (took, status) = (start.elapsed(), response.status().as_u16());
    app.engine.metrics.record(name, method, status, took);
    tracing::debug!(method, route = name, status, seconds = took.as_secs_f64());
    response
}

async fn answer(
    app: &App,
    route: Result<&'static Route, Failure>,
    path: HashMap<String, String>,
    request: Request,
) -> Result<Response, Failure> {
    let engine = &app.engine;
    let (parts, body) = request.into_parts();
    check_origin(&parts.headers, &parts.uri, engine.config.tokens.is_empty())?;
    let scope = engine.config.tokens.scope(&parts.headers).ok_or(Failure::Stranger)?;
    let route = route?;
    if scope < route.scope {
        let (needed, own) = (route.scope.name(), scope.name());
        return Err(Failure::Forbidden(format!(
            "this needs a token for '{needed}', and this one is for '{own}'"
        )));
    }
    let busy = || Failure::Busy("the server is answering as many requests as it may".into());
    let _permit = app.permits.try_acquire().map_err(|_| busy())?;
    let body = read(body, engine.config.limits.body).await?;
    let query = query(parts.uri.query().unwrap_or_default())?;
    let call = Call { engine: Arc::clone(engine), path, query, headers: parts.headers, body };
    (route.handler)(call).await
}

/// Rejects what the page of somebody else sends through the browser of a user, and names that were made to point here.
fn check_origin(headers: &HeaderMap, uri: &Uri, is_open: bool) -> Result<(), Failure> {
    let forbidden = |what: &str| Err(Failure::Forbidden(what.into()));
    let get = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return forbidden("requests from other sites are not answered");
    }
    let host =
        get(HOST.as_str()).or(uri.authority().map(axum::http::uri::Authority::as_str)).unwrap_or_default();
    if let Some(origin) = get(ORIGIN.as_str())
        && origin.split_once("://").is_none_or(|(_, origin)| origin != host)
    {
        return forbidden("requests from other origins are not answered");
    }
    // Without tokens only this machine may ask, and only by its own names.
    if is_open && !is_local(host) {
        return forbidden("without tokens the server answers as localhost alone");
    }
    Ok(())
}

fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    // HTTP/1.0 needs no name.
    let is_loopback = |ip: std::net::IpAddr| ip.to_canonical().is_loopback();
    name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

async fn read(body: Body, most: usize) -> Result<Bytes, Failure> {
    let too_large = || Failure::TooLarge(format!("the body has more than {most} bytes"));
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    match Limited::new(body, most).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(_) => Err(Failure::Malformed("the body ended before its end".into())),
    }
}

/// The parameters of a query; what is escaped in them is not needed here.
fn query(text: &str) -> Result<HashMap<String, String>, Failure> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut query = HashMap::new();
    for (name, value) in pairs {
        if query.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::Malformed("a parameter of the query is given twice".into()));
        }
    }
    Ok(query)
}

impl Call {
    fn name(&self) -> &str {
        self.path.get("model").map_or("", String::as_str)
    }

    /// There is one version of every model.
    fn check_version(&self) -> Result<(), Failure> {
        match self.path.get("version").map(String::as_str) {
            Some("1") => Ok(()),
            _ => Err(Failure::NotFound("there is one version of a model, 1".into())),
        }
    }

    fn parameter<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        let malformed = || Failure::Malformed(format!("the parameter '{name}' of the query makes no sense"));
        self.query.get(name).map(|text| text.parse().map_err(|_| malformed())).transpose()
    }

    /// The key by which a retry is known.
    fn key(&self) -> Result<Option<String>, Failure> {
        let Some(value) = self.headers.get("idempotency-key") else { return Ok(None) };
        let text = value.to_str().unwrap_or_default();
        let sound = (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        let malformed =
            || Failure::Malformed("an Idempotency-Key is 1 to 255 visible ASCII characters".into());
        sound.then(|| Some(text.to_owned())).ok_or_else(malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for local in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080", "[::1]", ""] {
            assert!(is_local(local), "{local}");
        }
        for other in
            ["example.org", "localhost.example.org:80", "10.0.0.1", "[::2]:80", "127.0.0.1.example.org"]
        {
            assert!(!is_local(other), "{other}");
        }
    }
}

//! Closed by default: strangers, scopes, other sites, limits. Every route is walked.

mod common;

use std::net::SocketAddr;

use common::{Server, regressor, table};
use serde_json::{Value, json};
use wiski_serve::{ROUTES, Scope};

const TOKENS: &str = "read reading-0123456789\nlearn learning-0123456789\nadmin admin-0123456789abcdef";

fn path(route: &wiski_serve::routes::Route) -> String {
    route
        .path
        .replace("{model}", "m")
        .replace("{version}", "1")
        .replace("{file}", "app.js")
        .replace("{figure}", "latency.svg")
}

fn guarded() -> Server {
    Server::with(|config| config.tokens = TOKENS.parse().unwrap())
}

#[tokio::test]
async fn a_stranger_gets_nowhere() {
    let server = guarded();
    for route in ROUTES {
        let path = path(route);
        for header in [
            None,
            Some("Bearer wrong-0123456789abcdef"),
            Some("Bearer "),
            Some("Basic Og=="),
            Some("Digest x"),
        ] {
            let headers: Vec<(&str, &str)> = header.map(|h| ("authorization", h)).into_iter().collect();
            let answer = server.send(route.method, &path, &headers, "{}").await;
            assert_eq!(answer.status, 401, "{} {path} {header:?}", route.method);
            assert!(answer.headers.contains_key("www-authenticate"));
        }
    }
    // Nor does he learn which paths there are.
    for (method, path) in
        [("GET", "/nowhere"), ("PATCH", "/v2"), ("GET", "/v2/models/m/learn"), ("OPTIONS", "/v2/models")]
    {
        server.send(method, path, &[], "").await.is(401);
    }
}

#[tokio::test]
async fn a_token_opens_what_its_scope_allows() {
    let server = guarded();
    for (token, scope) in [
        ("Bearer reading-0123456789", Scope::Read),
        ("Bearer learning-0123456789", Scope::Learn),
        ("Bearer admin-0123456789abcdef", Scope::Admin),
    ] {
        for route in ROUTES {
            let answer = server.send(route.method, &path(route), &[("authorization", token)], "{}").await;
            let is_refused = matches!(answer.status.as_u16(), 401 | 403);
            assert_eq!(is_refused, scope < route.scope, "{} {} {}", route.method, route.path, answer.status);
        }
    }
}

#[tokio::test]
async fn the_router_is_what_the_description_says() {
    let server = Server::new();
    let description = server.get("/openapi.json").await.ok();
    let paths = description["paths"].as_object().unwrap();
    let described: usize = paths.values().map(|methods| methods.as_object().unwrap().len()).sum();
    assert_eq!(described, ROUTES.len());
    for (path, methods) in paths {
        let filled = path
            .replace("{model}", "m")
            .replace("{version}", "1")
            .replace("{file}", "app.js")
            .replace("{figure}", "latency.svg");
        for method in ["get", "post", "put", "delete", "patch"] {
            server.engine.delete("m").await.ok();
            server.make_with("m", 40).await;
            let answer = server.send(&method.to_uppercase(), &filled, &[], "{}").await;
            let is_there = answer.status.as_u16() != 405;
            assert_eq!(is_there, methods.get(method).is_some(), "{method} {path}: {}", answer.status);
            let Some(operation) = methods.get(method) else { continue };
            // What is answered is described.
            let status = answer.status.as_u16().to_string();
            assert!(
                operation["responses"].get(&status).is_some(),
                "{method} {path}: {status} {}",
                answer.text()
            );
        }
    }
    let model = &description["components"]["schemas"]["Model"]["properties"];
    let mut whole = regressor("described");
    whole["settings"] = json!({ "features": "identity", "seed": 3 });
    for key in whole.as_object().unwrap().keys() {
        assert!(model.get(key).is_some(), "{key}");
    }
}

#[tokio::test]
async fn other_sites_and_other_names_are_turned_away() {
    let server = Server::new();
    server.make("m").await;
    let infer = "/v2/models/m/learn";
    let body = table(0, 3).to_string();
    for (headers, status) in [
        (vec![("host", "127.0.0.1:8080")], 200),
        (
            vec![
                ("host", "localhost:8080"),
                ("origin", "http://localhost:8080"),
                ("sec-fetch-site", "same-origin"),
            ],
            200,
        ),
        (vec![("host", "localhost:8080"), ("origin", "http://example.org")], 403),
        (vec![("host", "localhost:8080"), ("origin", "null")], 403),
        (vec![("host", "localhost:8080"), ("sec-fetch-site", "cross-site")], 403),
        // A name that was made to point here.
        (vec![("host", "rebound.example.org:8080")], 403),
    ] {
        let answer = server.send("POST", infer, &headers, body.clone()).await;
        assert_eq!(answer.status.as_u16(), status, "{headers:?}");
        assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("access-control-")));
    }
    // With tokens the name is the operator's business.
    let headers = [("host", "models.example.org"), ("authorization", "Bearer reading-0123456789")];
    guarded().send("GET", "/v2", &headers, "").await.is(200);
}

#[test]
fn others_than_this_machine_need_a_token() {
    let server = Server::new();
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    for open in ["127.0.0.1:80", "[::1]:80", "127.9.9.9:1"] {
        assert!(server.engine.config.may_listen(address(open)), "{open}");
    }
    for closed in ["0.0.0.0:80", "[::]:80", "192.168.1.2:80", "[::ffff:8.8.8.8]:80"] {
        assert!(!server.engine.config.may_listen(address(closed)), "{closed}");
        assert!(guarded().engine.config.may_listen(address(closed)), "{closed}");
    }
}

#[tokio::test]
async fn limits() {
    let server = Server::with(|config| {
        config.limits.body = 2000;
        config.limits.rows = 10;
        config.limits.columns = 3;
    });
    server.make("m").await;
    server.post("/v2/models/m/learn", table(0, 10)).await.ok();
    server.post("/v2/models/m/learn", table(0, 11)).await.is(413);
    server.send("POST", "/v2/models/m/learn", &[], " ".repeat(2001)).await.is(413);
    let mut wide = regressor("wide");
    wide["inputs"] = json!(["a", "b", "c", "d"]);
    server.post("/v2/models", wide).await.is(422);
    // A body whose length is not known in advance.
    let pieces = http_body_util::Full::new(bytes::Bytes::from(vec![b' '; 3000]));
    let body = axum::body::Body::new(http_body_util::combinators::UnsyncBoxBody::new(pieces));
    server.send("POST", "/v2/models/m/learn", &[], body).await.is(413);
    server.keyed("/v2/models/m/learn", &"k".repeat(256), table(0, 1)).await.is(400);
    server.keyed("/v2/models/m/learn", "with blank", table(0, 1)).await.is(400);
    let busy = Server::with(|config| config.limits.requests = 0);
    let answer = busy.get("/v2").await;
    assert!(answer.headers.contains_key("retry-after"));
    answer.is(429);
}

#[tokio::test]
async fn the_page_and_its_parts_come_from_the_binary() {
    let server = Server::new();
    let page = server.get("/").await.is(200);
    let mut files: Vec<&str> =
        page.split("/assets/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    files.sort_unstable();
    assert_eq!(files, ["app.css", "app.js", "uplot-license.txt", "uplot.css", "uplot.js"]);
    for file in files {
        let answer = server.get(&format!("/assets/{file}")).await;
        assert_eq!(answer.status, 200, "{file}");
        // Nothing is fetched from elsewhere.
        let text = answer.text();
        let foreign = text.match_indices("http").filter(|(i, _)| {
            let rest = &text[*i..];
            rest.starts_with("http://")
                || (rest.starts_with("https://") && !rest.starts_with("https://github.com/leeoniya"))
        });
        let foreign: Vec<&str> = foreign.map(|(i, _)| &text[i..(i + 40).min(text.len())]).collect();
        assert!(foreign.iter().all(|f| f.starts_with("http://www.w3.org/")), "{file}: {foreign:?}");
    }
    server.get("/assets/..%2fCargo.toml").await.is(404);
    let policy = server.get("/").await.headers["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("default-src 'self'"), "{policy}");
    let _: Value = server.get("/openapi.json").await.ok();
}

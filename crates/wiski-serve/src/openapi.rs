//! The description of all routes by OpenAPI 3.1, made from the table that the router is made from.

use serde_json::{Map, Value, json};

use crate::routes::{ROUTES, Route, Takes};

/// The description.
pub fn description() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "wiski",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Online Gaussian processes that learn over HTTP",
            "description": "The Open Inference Protocol v2, with extensions for learning.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": { "schemas": schemas(), "securitySchemes": {
            "token": { "type": "http", "scheme": "bearer" },
            "password": { "type": "http", "scheme": "basic" },
        } },
    })
}

fn operation(route: &Route) -> Value {
    let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let mut query = |name: &str, kind: &str, what: &str| {
        let schema = json!({ "type": kind });
        parameters.push(json!({ "name": name, "in": "query", "description": what, "schema": schema }));
    };
    match route.id {
        "infer" | "version_infer" | "step" => {
            query("level", "number", "The share of targets that intervals are to hold.");
            if route.id != "step" {
                query("horizon", "integer", "Steps ahead, of a forecaster without inputs.");
            }
        }
        "snapshot" => query("shard", "boolean", "The same model with nothing learned."),
        "figure" => query("theme", "string", "light (the default) or dark."),
        "events" => query("rate", "integer", "Rows shown in a second, at most."),
        _ => {}
    }
    let is_change =
        matches!(route.id, "learn" | "step" | "forget" | "ask" | "tell" | "refit" | "freeze" | "merge");
    if is_change {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "schema": { "type": "string", "maxLength": 255 },
            "description": "A retry with the same key is not carried out twice, also after a restart.",
        }));
    }
    let answer = |what: &str| json!({ "description": what, "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } } });
    let mut responses = json!({
        "401": answer("No known token."),
        "403": answer("The token does not allow this, or the request comes from another site."),
        "429": answer("Too much to do; Retry-After says when to come again."),
    });
    let success = if matches!(route.id, "create" | "put") { "201" } else { "200" };
    responses[success] = json!({ "description": "Done.", "content": content(route) });
    if route.takes != Takes::Nothing {
        responses["400"] = answer("The request cannot be understood.");
        responses["413"] = answer("More bytes or rows than are allowed.");
        responses["415"] = answer("A body of a kind that is not read.");
        responses["422"] = answer("It makes no sense for this model.");
    }
    if route.path.contains('{') {
        responses["404"] = answer("There is no such thing.");
        responses["409"] = answer("The warm-up is not over, or the name is taken.");
    }
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
        "security": [{ "token": [] }, { "password": [] }],
        "x-scope": route.scope.name(),
    });
    if let Some(body) = body(route.takes) {
        operation["requestBody"] = body;
    }
    operation
}

fn content(route: &Route) -> Value {
    let (kind, schema) = match route.id {
        "page" => ("text/html", json!({ "type": "string" })),
        "asset" | "metrics" => ("text/plain", json!({ "type": "string" })),
        "figure" => ("image/svg+xml", json!({ "type": "string" })),
        "events" => ("text/event-stream", json!({ "type": "string" })),
        "snapshot" => ("application/octet-stream", json!({ "type": "string", "format": "binary" })),
        "infer" | "version_infer" => (
            "application/json",
            json!({ "oneOf": [
            { "$ref": "#/components/schemas/Predictions" }, { "$ref": "#/components/schemas/InferenceResponse" },
        ] }),
        ),
        "learn" | "step" | "forget" | "tell" => {
            ("application/json", json!({ "$ref": "#/components/schemas/Learned" }))
        }
        _ => ("application/json", json!({ "type": ["object", "array"] })),
    };
    json!({ kind: { "schema": schema } })
}

fn body(takes: Takes) -> Option<Value> {
    let schema = |name: &str| json!({ "schema": { "$ref": format!("#/components/schemas/{name}") } });
    let binary = json!({ "schema": { "type": "string", "format": "binary" } });
    let text = json!({ "schema": { "type": "string" } });
    let content = match takes {
        Takes::Nothing => return None,
        Takes::Rows => json!({
            "application/json": { "schema": { "oneOf": [
                { "$ref": "#/components/schemas/Rows" }, { "$ref": "#/components/schemas/InferenceRequest" },
                { "$ref": "#/components/schemas/Horizon" },
            ] } },
            "application/x-ndjson": text,
            "text/csv": text,
            (crate::decode::ARROW): binary,
        }),
        Takes::Description => json!({ "application/json": schema("Model") }),
        Takes::DescriptionOrSnapshot => {
            json!({ "application/json": schema("Model"), "application/octet-stream": binary })
        }
        Takes::Snapshot => json!({ "application/octet-stream": binary }),
        Takes::Count => json!({ "application/json": { "schema": {
            "type": "object", "properties": { "count": { "type": "integer", "minimum": 1, "maximum": 64 } },
        } } }),
    };
    Some(json!({ "required": takes != Takes::Count, "content": content }))
}

fn schemas() -> Value {
    serde_json::from_str(include_str!("schemas.json")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values of a key, wherever they stand.
    fn all<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| {
                found.extend(value.as_str().filter(|_| name == key));
                all(value, key, found);
            }),
            Value::Array(list) => list.iter().for_each(|value| all(value, key, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_no_name_is_used_twice() {
        let description = description();
        let mut references = Vec::new();
        all(&description, "$ref", &mut references);
        assert!(references.len() > 10);
        for reference in references {
            let path = reference.strip_prefix('#').unwrap();
            assert!(description.pointer(path).is_some(), "{reference}");
        }
        let mut names = Vec::new();
        all(&description, "operationId", &mut names);
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!((names.len(), count), (ROUTES.len(), ROUTES.len()));
    }
}

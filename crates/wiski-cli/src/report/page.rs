//! The page of a report.

use super::{Plate, Report};
use std::fmt::Write;

/// The page, with its style and its figures inside. The policy keeps a browser from fetching anything.
pub(super) fn html(report: &Report, plates: &[Plate]) -> String {
    let mut body = String::new();
    if !report.headline.is_empty() {
        body += &section("Headline figures", &table(&report.headline, "headline"));
    }
    for plate in plates {
        let svg = plate.svg.replacen(
            "<svg ",
            &format!("<svg role=\"img\" aria-label=\"{}\" ", escape(plate.heading)),
            1,
        );
        let reading = escape(plate.reading);
        let file = escape(&plate.file);
        let figure = format!(
            "<figure>\n{svg}\n<figcaption>{reading} <a href=\"{file}\">{file}</a></figcaption>\n</figure>\n"
        );
        body += &section(plate.heading, &figure);
    }
    if !report.events.is_empty() {
        body += &section("Events", &table(&report.events, "settings"));
    }
    if !report.settings.is_empty() {
        body += &section("Settings", &table(&report.settings, "settings"));
    }
    let summary = if report.summary.is_empty() {
        String::new()
    } else {
        format!("<p>{}</p>\n", escape(&report.summary))
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{style}</style>\n</head>\n\
         <body>\n<header>\n<h1>{title}</h1>\n{summary}</header>\n<main>\n{body}</main>\n</body>\n</html>\n",
        title = escape(&report.title),
        style = include_str!("page.css"),
    )
}

fn section(heading: &str, content: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{content}</section>\n", escape(heading))
}

fn table(rows: &[(String, String)], class: &str) -> String {
    let mut out = format!("<table class=\"{class}\">\n");
    for (name, value) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    out + "</table>\n"
}

/// Text as HTML shows it unchanged, inside elements and quoted attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            _ => out.push(c),
        }
    }
    out
}

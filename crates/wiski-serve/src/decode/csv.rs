//! Comma-separated values: a line of names, then rows. Columns that the model does not know are left out.

use std::borrow::Cow;

use super::{About, text};
use crate::batch::{Builder, Cell, Slot};
use crate::error::Failure;

pub(super) fn read(body: &[u8], builder: &mut Builder) -> Result<About, Failure> {
    let mut rest = text(body)?;
    let mut slots: Option<Vec<Option<Slot>>> = None;
    let mut line = 0;
    while !rest.is_empty() {
        line += 1;
        let (row, after) = split_row(rest);
        rest = after;
        let row = row.strip_suffix('\r').unwrap_or(row);
        if row.trim().is_empty() {
            continue;
        }
        let malformed = |what: &str| Failure::Malformed(format!("row {line} of the CSV {what}"));
        let cells = cells(row).ok_or_else(|| malformed("has a quote in the wrong place"))?;
        let Some(slots) = &slots else {
            slots = Some(header(&cells, builder)?);
            continue;
        };
        if cells.len() != slots.len() {
            return Err(malformed(&format!(
                "has {} cells where there are {} names",
                cells.len(),
                slots.len()
            )));
        }
        for (slot, cell) in slots.iter().zip(&cells) {
            let cell = if cell.trim().is_empty() { Cell::Missing } else { Cell::Text(cell) };
            slot.map_or(Ok(()), |slot| builder.set(slot, cell))?;
        }
        builder.end_row()?;
    }
    Ok(About::default())
}

fn header(names: &[Cow<str>], builder: &Builder) -> Result<Vec<Option<Slot>>, Failure> {
    let slots: Vec<_> = names.iter().map(|name| builder.schema().slot(name.trim())).collect();
    let known = slots.iter().flatten();
    if let Some(twice) =
        known.enumerate().find(|(i, slot)| slots.iter().flatten().take(*i).any(|s| s == *slot))
    {
        let name = builder.schema().name(*twice.1);
        return Err(Failure::Malformed(format!("'{name}' is named twice in the first line of the CSV")));
    }
    Ok(slots)
}

/// The next row and what follows it; a line may end within quotes.
fn split_row(text: &str) -> (&str, &str) {
    let mut quoted = false;
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' if !quoted => return (&text[..i], &text[i + 1..]),
            _ => {}
        }
    }
    (text, "")
}

/// The cells of a row; nothing if a quote makes no sense.
fn cells(row: &str) -> Option<Vec<Cow<'_, str>>> {
    let (mut out, mut rest) = (Vec::new(), row);
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut content = String::new();
            let mut tail = quoted;
            loop {
                let (part, after) = tail.split_once('"')?;
                content.push_str(part);
                // Two quotes stand for one.
                if let Some(more) = after.strip_prefix('"') {
                    content.push('"');
                    tail = more;
                } else {
                    tail = after;
                    break;
                }
            }
            out.push(Cow::Owned(content));
            match tail.strip_prefix(',') {
                Some(more) => rest = more,
                None => return tail.is_empty().then_some(out),
            }
        } else {
            let Some((cell, more)) = rest.split_once(',') else {
                out.push(Cow::Borrowed(rest));
                return Some(out);
            };
            out.push(Cow::Borrowed(cell));
            rest = more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_quotes() {
        let read = |row| cells(row).map(|c| c.into_iter().map(Cow::into_owned).collect::<Vec<_>>());
        assert_eq!(read("a,b,").unwrap(), ["a", "b", ""]);
        assert_eq!(read("\"a,\"\"b\"\"\",2").unwrap(), ["a,\"b\"", "2"]);
        assert_eq!(read("\"open"), None);
        assert_eq!(read("\"a\"b,c"), None);
        assert_eq!(split_row("\"a\nb\",1\nc,2"), ("\"a\nb\",1", "c,2"));
    }
}

//! Lists of column names on the command line: separated by commas; a name with a comma stands in quotation marks.

/// The parts of a list. Within quotation marks a comma is a part of the name, and two marks are one.
pub(crate) fn split(list: &str) -> Vec<String> {
    let (mut parts, mut part, mut quoted) = (Vec::new(), String::new(), false);
    let mut rest = list.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if quoted && rest.peek() == Some(&'"') => {
                part.push('"');
                rest.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => parts.push(std::mem::take(&mut part)),
            c => part.push(c),
        }
    }
    parts.push(part);
    parts
}

/// All parts of several lists, as an option that may be given more than once has them.
pub(crate) fn split_all(lists: &[String]) -> Vec<String> {
    lists.iter().flat_map(|list| split(list)).collect()
}

/// Names as a list that [`split`] takes apart again.
pub(crate) fn join(names: &[impl AsRef<str>]) -> String {
    let one = |name: &str| {
        if name.contains([',', '"']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.into() }
    };
    names.iter().map(|name| one(name.as_ref())).collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back() {
        assert_eq!(split("a,b"), ["a", "b"]);
        assert_eq!(split("a"), ["a"]);
        assert_eq!(split("\"a,b\"=24,c"), ["a,b=24", "c"]);
        assert_eq!(split("\"say \"\"x\"\"\",y"), ["say \"x\"", "y"]);
        for names in [vec!["a", "b,c", "d\"e"], vec!["x"], vec!["", "y"]] {
            assert_eq!(split(&join(&names)), names);
        }
    }
}

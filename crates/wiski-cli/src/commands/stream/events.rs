//! What happens along a stream beside its rows: a column dies and comes back, rows change, outliers come.

use std::mem::discriminant;

use wiski::model::Remark;
use wiski::persist::Stored;

/// The events that a report lists.
const MOST_LISTED: usize = 200;

/// The remarks of a model as they come and go.
#[derive(Default)]
pub(super) struct Events {
    before: Vec<Remark>,
    /// The first ones, with the number of the row.
    pub(super) listed: Vec<(String, String)>,
}

impl Events {
    /// What a row has brought about, in words.
    pub(super) fn after_row(&mut self, number: u64, stored: &Stored) -> Vec<String> {
        let now = stored.model.remarks();
        if now == self.before {
            return Vec::new();
        }
        let (names, before) = (&stored.columns.inputs, std::mem::take(&mut self.before));
        let is_news = |remark: &&Remark| !before.iter().any(|known| says_as_much(known, remark));
        let mut all: Vec<String> = now.iter().filter(is_news).map(|remark| remark.text(names)).collect();
        let is_over = |remark: &&Remark| !now.iter().any(|new| is_same(remark, new));
        all.extend(before.iter().filter(is_over).filter_map(|remark| ended(remark, names)));
        // Counts are told when they have doubled.
        let keep =
            |new: Remark| before.iter().find(|known| says_as_much(known, &new)).cloned().unwrap_or(new);
        self.before = now.into_iter().map(keep).collect();
        let room = MOST_LISTED.saturating_sub(self.listed.len());
        self.listed.extend(all.iter().take(room).map(|text| (format!("row {number}"), text.clone())));
        all
    }
}

/// Whether two remarks are about the same thing.
fn is_same(a: &Remark, b: &Remark) -> bool {
    match (a, b) {
        (Remark::Clock { column: a, .. }, Remark::Clock { column: b, .. })
        | (Remark::Coarse { column: a, .. }, Remark::Coarse { column: b, .. }) => a == b,
        (Remark::Stuck { column: a, .. }, Remark::Stuck { column: b, .. }) => a == b,
        _ => discriminant(a) == discriminant(b),
    }
}

/// Whether somebody who knows one remark knows the other, but for details.
fn says_as_much(known: &Remark, new: &Remark) -> bool {
    let count = |remark: &Remark| match remark {
        Remark::OffGrid { rows } | Remark::Incomplete { rows } | Remark::Outliers { rows } => Some(*rows),
        _ => None,
    };
    is_same(known, new) && count(known).zip(count(new)).is_none_or(|(known, new)| new < 2 * known)
}

/// What to say when something is over that was remarked; nothing of what only was found out.
fn ended(remark: &Remark, names: &[String]) -> Option<String> {
    match remark {
        Remark::Stuck { column, .. } => {
            let name =
                column.map_or("the target", |column| names.get(column).map_or("a column", String::as_str));
            Some(format!("{name} changes again"))
        }
        Remark::Changed(_) => Some("the last rows are again what the model learned of all".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_when_they_have_doubled() {
        let outliers = |rows| Remark::Outliers { rows };
        assert!(says_as_much(&outliers(2), &outliers(3)));
        assert!(!says_as_much(&outliers(2), &outliers(4)));
        assert!(!says_as_much(&outliers(2), &Remark::OffGrid { rows: 2 }));
        let stuck = |column| Remark::Stuck { column, rows: 60 };
        assert!(says_as_much(&stuck(Some(1)), &stuck(Some(1))) && !is_same(&stuck(Some(1)), &stuck(None)));
        assert_eq!(ended(&stuck(None), &[]).unwrap(), "the target changes again");
    }
}

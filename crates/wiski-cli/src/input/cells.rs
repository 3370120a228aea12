//! The cells of one record as text, in memory that the next record uses again.

/// The cells of one record.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cells {
    text: String,
    /// Where each cell begins and ends in `text`. JSON brings cells in any order, so ends alone would not do.
    spans: Vec<(usize, usize)>,
}

impl Cells {
    /// How many cells there are.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// The cell at this place, from 0.
    pub(crate) fn get(&self, i: usize) -> &str {
        let (start, end) = self.spans[i];
        &self.text[start..end]
    }

    /// The cells in the order of the columns.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.spans.iter().map(|&(start, end)| &self.text[start..end])
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
    }

    /// Makes this many empty cells.
    pub(super) fn blank(&mut self, len: usize) {
        self.clear();
        self.spans.resize(len, (0, 0));
    }

    /// Appends a cell with the text that `write` appends.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut String)) {
        let start = self.text.len();
        write(&mut self.text);
        self.spans.push((start, self.text.len()));
    }

    /// Replaces the cell at this place.
    pub(super) fn set(&mut self, i: usize, cell: &str) {
        self.spans[i] = (self.text.len(), self.text.len() + cell.len());
        self.text += cell;
    }

    /// Takes a whole record without quotation marks.
    pub(super) fn split(&mut self, record: &str, delimiter: u8) {
        self.clear();
        self.text += record;
        let mut start = 0;
        for end in memchr::memchr_iter(delimiter, record.as_bytes()) {
            self.spans.push((start, end));
            start = end + 1;
        }
        self.spans.push((start, record.len()));
    }
}

//! What regressor and classifier say alike of their stream ([`Online`](super::online::Online)): how far it is, its upkeep,
//! its readers.

/// The methods of a model whose `online` is its stream and whose `metrics` are its running figures.
macro_rules! stream_methods {
    ($model:ident, $metrics:ty, $snapshot:ty) => {
        impl $model {
            /// The settings, with every default resolved.
            pub fn settings(&self) -> &$crate::model::Settings {
                &self.online.settings
            }

            /// The number of input columns.
            pub fn input_dim(&self) -> usize {
                self.online.input_dim
            }

            /// Whether the warm-up is over.
            pub fn is_ready(&self) -> bool {
                self.online.learner.is_some()
            }

            /// The sum of the weights of the rows learned: their number, unless old ones fade.
            pub fn count(&self) -> f64 {
                self.online.count()
            }

            /// Running figures of the predictions made by [`Self::step`] after the warm-up.
            pub fn metrics(&self) -> &$metrics {
                &self.metrics
            }

            /// Scaling and feature map, once the warm-up is over.
            pub fn encoder(&self) -> Option<&$crate::model::Encoder> {
                self.online.learner.as_ref().map(|l| l.encoder())
            }

            /// Which projection was chosen, if one was.
            pub fn choice(&self) -> Option<&$crate::learn::Choice> {
                self.online.learner.as_ref().and_then(|l| l.choice())
            }

            /// How often the hyperparameters were refitted since the warm-up.
            pub fn refits(&self) -> usize {
                self.online.refits()
            }

            /// How many rows lay off the grid, so that nothing was learned of them ([`OffGrid::Prior`](super::OffGrid::Prior)),
            /// since the warm-up.
            pub fn ignored(&self) -> u64 {
                self.online.ignored()
            }

            /// The range of each column within which predictions follow from what was learned, if the model is one grid whose
            /// axes are the columns: beyond it only the prior is known. `None` for other models, whose intervals widen with the
            /// distance, and during the warm-up.
            pub fn covered(&self) -> Option<Vec<(f64, f64)>> {
                let learner = self.online.learner.as_ref()?;
                learner.encoder().covered(learner.first().stats().lattice())
            }

            /// What a user should know about the data and the fit: a clock among the columns, a grid too coarse, rows left out.
            pub fn remarks(&self) -> Vec<$crate::model::Remark> {
                self.online.remarks()
            }

            /// What went wrong beside the rows since the last call, if anything did: a refit, a search for features, the end of
            /// the warm-up. Every row that was accepted is learned in spite of it, and what failed is tried again later.
            pub fn take_failure(&mut self) -> Option<$crate::error::Error> {
                self.online.take_failure()
            }

            /// How far the stream has moved away from what the model learned of all rows; `None` during the warm-up and without
            /// [`Settings::tracking`].
            pub fn change(&self) -> Option<$crate::model::Change> {
                self.online.change()
            }

            /// Lets go of what the last rows said beyond the model ([`Settings::tracking`]): where rows to come do not follow those
            /// that were learned, as after fitting a table whose order has no meaning.
            pub fn drop_corrections(&mut self) {
                self.online.drop_corrections();
            }

            /// Tells that so many rows are there already, and that nothing will be asked before [`Self::finish_search`]. Features
            /// and hyperparameters are then learned once, from all rows in memory, and not each time that rows have doubled: about a
            /// third less work for a table. What is said of a row before it is learned, and the figures of it, are poorer meanwhile.
            pub fn expect(&mut self, rows: usize) {
                self.online.expect(rows);
            }

            /// Waits for the search or refit that runs beside the stream, if one does, and goes on with what it found
            /// ([`Upkeep::Background`](super::Upkeep::Background)).
            pub fn finish_upkeep(&mut self) {
                self.attend_upkeep(usize::MAX);
            }

            /// How far the search or refit is that runs beside the stream.
            pub fn upkeep_stage(&self) -> $crate::model::UpkeepStage {
                self.online.upkeep_stage()
            }

            /// Says anew whether rows wait for searches and refits.
            pub fn set_upkeep(&mut self, upkeep: $crate::model::Upkeep) {
                self.online.settings.upkeep = upkeep;
            }

            /// Whether features may still be learned anew from rows in memory.
            pub fn is_searching(&self) -> bool {
                self.online.is_searching()
            }

            /// Whether [`Self::finish_search`] would look for features again: rows are still in memory, or those that came since
            /// features were learned are distributed otherwise than those before.
            pub fn is_unfinished(&self) -> bool {
                self.online.is_unfinished()
            }

            /// Whether so many more rows may end the warm-up or bring about a search for features, which takes longer than
            /// a row does.
            pub fn may_search(&self, rows: usize) -> bool {
                self.online.may_search(rows)
            }

            /// Stops learning the feature map and makes its batch statistics constants: from here on a row has the
            /// same coordinates for ever, and rows can be forgotten and models merged.
            pub fn freeze_features(&mut self) -> $crate::error::Result<()> {
                self.online.freeze_features()
            }

            /// Learns everything another model has learned; hyperparameters stay this model's. Exact: the result is this
            /// model, had it learned all rows with the features that it has. Rejected unless both models map rows to the same
            /// coordinates. A model that had learned all rows from the start may have found other features
            /// ([`Self::is_searching`]). The quantiles of their intervals become means of both, by the number of rows
            /// predicted; how the noise varies is taken from the one that has seen more of it. Classes are matched by label;
            /// a class that only one of them knows is possible where both add unseen classes.
            pub fn merge(&mut self, other: &Self) -> $crate::error::Result<()> {
                self.online.merge(&other.online)?;
                self.metrics.merge(&other.metrics);
                Ok(())
            }

            /// Fits the hyperparameters to everything learned so far, whatever the schedule: worthwhile after merging.
            pub fn refit(&mut self) -> $crate::error::Result<()> {
                self.online.refit()
            }

            /// Exponential forgetting at once: every row so far counts `factor` times as much. The controller of intervals has
            /// a memory of its own, and stays as it is.
            pub fn decay(&mut self, factor: f64) -> $crate::error::Result<()> {
                self.online.decay(factor)
            }

            /// An immutable model for predictions from any thread; `None` during the warm-up.
            pub fn snapshot(&self) -> Option<std::sync::Arc<$snapshot>> {
                self.online.snapshot()
            }

            /// A handle that always gives the newest published snapshot. Snapshots are published after the warm-up,
            /// after every refit and by [`Self::publish`]; taking one never waits for learning.
            pub fn reader(&self) -> $crate::model::Reader<$snapshot> {
                self.online.reader()
            }

            /// Publishes the present state to all readers.
            pub fn publish(&self) {
                self.online.publish();
            }
        }
    };
}

pub(super) use stream_methods;

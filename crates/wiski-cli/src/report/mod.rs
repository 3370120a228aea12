//! A report.

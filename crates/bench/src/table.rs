//! Tables for people.

use std::fmt::Display;

use comfy_table::{CellAlignment, Table, presets};

/// A table whose columns are numbers but for the first `names` of them.
pub(crate) fn table(header: &[impl Display], names: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table.column_iter_mut().skip(names).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

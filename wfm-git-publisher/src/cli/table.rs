//! Rows under each other. On a terminal they fit into its lines; elsewhere each row is one line, for `grep` and its like.

use std::cmp::Reverse;

use jiff::Timestamp;
use repo_model::text;

use super::terminal;

/// Spaces between two columns.
const GAP: usize = 2;

/// No column is made narrower than that.
const LEAST: usize = 12;

/// Rows under each other, the head first, each column as wide as its widest cell, where a terminal has that room. A row stays one,
/// whatever strangers wrote in its cells: a second line of it begins with spaces. Where a terminal hasn't even room for narrow columns,
/// each row is a block of lines, one for each cell.
pub(super) fn table<const N: usize>(rows: &[[impl AsRef<str>; N]]) -> String {
    fitted(rows, room(), true)
}

/// The same of rows that come below a table, whose head, the first of these, was printed before.
pub(super) fn more_rows<const N: usize>(rows: &[[impl AsRef<str>; N]]) -> String {
    fitted(rows, room(), false)
}

fn room() -> Option<usize> {
    terminal::width(std::io::stdout()).map(|width| width.get().into())
}

fn fitted<const N: usize>(rows: &[[impl AsRef<str>; N]], room: Option<usize>, shows_head: bool) -> String {
    let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(|cell| text::cell(cell.as_ref()))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut widths: [usize; N] = std::array::from_fn(width);
    if let Some(room) = room {
        let least: [usize; N] =
            std::array::from_fn(|column| least(rows.iter().map(|row| row[column].as_str()), widths[column], column));
        if line(&least) > room {
            return blocks(&rows, room, shows_head);
        }
        narrow(&mut widths, &least, room);
    }
    let mut table = String::new();
    rows.iter().skip(usize::from(!shows_head)).for_each(|row| push_row(&mut table, row.each_ref(), widths));
    table
}

/// How wide a column has to be at least: the first one, which says what a row is about, as it is, and a moment in one piece.
fn least<'a>(cells: impl Iterator<Item = &'a str>, width: usize, column: usize) -> usize {
    let moments = cells.filter(|cell| cell.parse::<Timestamp>().is_ok());
    if column == 0 { width } else { width.min(moments.map(str::len).max().unwrap_or(0).max(LEAST)) }
}

fn line(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Takes from the widest columns until a line has this room.
fn narrow(widths: &mut [usize], least: &[usize], room: usize) {
    let mut over = line(widths).saturating_sub(room);
    let mut columns: Vec<_> = widths.iter_mut().zip(least).collect();
    columns.sort_unstable_by_key(|(width, _)| Reverse(**width));
    for (width, least) in columns {
        let less = over.min(*width - least);
        *width -= less;
        over -= less;
    }
}

/// A block for each row, with an empty line between two: what a cell is about, and the cell. Empty ones are left out.
fn blocks<const N: usize>(rows: &[[String; N]], room: usize, shows_head: bool) -> String {
    let Some((head, rows)) = rows.split_first() else { return String::new() };
    let name = head.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let widths = [name, room.saturating_sub(name + GAP).max(LEAST)];
    let mut all = String::new();
    for (at, row) in rows.iter().enumerate() {
        if at > 0 || !shows_head {
            all.push('\n');
        }
        let said = head.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        said.for_each(|(name, cell)| push_row(&mut all, [name, cell], widths));
    }
    all
}

/// Adds a row; what is too wide for its column goes on below itself.
fn push_row<const N: usize>(table: &mut String, row: [&String; N], widths: [usize; N]) {
    let mut left = row.map(String::as_str);
    loop {
        let begin = table.len();
        for (cell, width) in left.iter_mut().zip(widths) {
            let (now, then) = split(cell, width);
            table.push_str(now);
            table.extend(std::iter::repeat_n(' ', width - now.chars().count() + GAP));
            *cell = then;
        }
        table.truncate(begin + table[begin..].trim_end().len());
        table.push('\n');
        if left.iter().all(|cell| cell.is_empty()) {
            return;
        }
    }
}

/// As much of a cell as a line of this width has, up to the end of a word if there is one, and the rest.
fn split(cell: &str, width: usize) -> (&str, &str) {
    let Some((end, next)) = cell.char_indices().nth(width) else { return (cell, "") };
    if next == ' ' {
        return (&cell[..end], &cell[end + 1..]);
    }
    cell[..end].rsplit_once(' ').map_or_else(|| cell.split_at(end), |(now, _)| (now, &cell[now.len() + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [[&str; 3]; 3] = [
        ["DEVICE", "DEPLOYMENT", "REASON"],
        ["press-01", "hello", "cannot fetch the archive: sha256:0123456789abcdef0123456789abcdef isn't there"],
        ["press-02", "hello", "press-03  hello"],
    ];

    #[test]
    fn a_row_is_one_line_where_nobody_says_how_wide_a_line_is() {
        let table = fitted(&ROWS, None, true);
        assert_eq!(table.lines().count(), 3);
        assert_eq!(table.lines().next(), Some("DEVICE    DEPLOYMENT  REASON"));
        assert_eq!(fitted(&ROWS, Some(200), true), table);
    }

    #[test]
    fn what_is_too_wide_goes_on_below_itself_and_the_first_column_never_does() {
        let expected = "\
            DEVICE    DEPLOYMENT  REASON\n\
            press-01  hello       cannot fetch the\n\
            \x20                     archive:\n\
            \x20                     sha256:0123456789a\n\
            \x20                     bcdef0123456789abc\n\
            \x20                     def isn't there\n\
            press-02  hello       press-03 hello\n";
        assert_eq!(fitted(&ROWS, Some(40), true), expected);
    }

    #[test]
    fn where_there_is_no_room_for_narrow_columns_each_row_is_a_block() {
        let rows = [ROWS[0], ["press-01", "hello", ""], ["press-02", "hello", "cannot fetch the archive"]];
        let expected = "\
            DEVICE      press-01\n\
            DEPLOYMENT  hello\n\
            \n\
            DEVICE      press-02\n\
            DEPLOYMENT  hello\n\
            REASON      cannot fetch the\n\
            \x20           archive\n";
        assert_eq!(fitted(&rows, Some(30), true), expected);
        // Those that come later are apart from what was printed before.
        assert_eq!(fitted(&rows, Some(30), false), format!("\n{expected}"));
        assert_eq!(fitted(&rows[..1], Some(20), true), "", "no row, no block");
        let narrow = fitted(&ROWS, Some(5), true);
        assert!(narrow.lines().all(|line| line.chars().count() <= 10 + GAP + LEAST), "{narrow}");
    }

    #[test]
    fn a_moment_is_in_one_piece() {
        let rows = [["DEVICE", "SINCE", "REASON"], ["press-01", "2026-11-29T12:50:47Z", "the registry doesn't answer"]];
        let table = fitted(&rows, Some(50), true);
        assert!(table.contains("press-01  2026-11-29T12:50:47Z  the registry\n"), "{table}");
        assert!(fitted(&rows, Some(40), true).starts_with("DEVICE  press-01\nSINCE   2026-11-29T12:50:47Z\n"));
    }
}

//! Rows under each other. On a terminal they fit into its lines; elsewhere each row is one line, for `grep` and its like.

use std::cmp::Reverse;

use repo_model::text;

use super::terminal;

/// Spaces between two columns.
const GAP: usize = 2;

/// No column is made narrower than that.
const LEAST: usize = 12;

/// Rows under each other, each column as wide as its widest cell, where a terminal has that room. A row stays one, whatever
/// strangers wrote in its cells: a second line of it begins with spaces.
pub(super) fn table<const N: usize>(rows: &[[impl AsRef<str>; N]]) -> String {
    fitted(rows, terminal::width(std::io::stdout()).map(|width| width.get().into()))
}

fn fitted<const N: usize>(rows: &[[impl AsRef<str>; N]], room: Option<usize>) -> String {
    let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(|cell| text::cell(cell.as_ref()))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut widths: [usize; N] = std::array::from_fn(width);
    room.into_iter().for_each(|room| narrow(&mut widths, room));
    let mut table = String::new();
    for row in &rows {
        let mut left = row.each_ref().map(String::as_str);
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
                break;
            }
        }
    }
    table
}

/// Takes from the widest columns until a line has this room, but not from the first one, which says what a row is about.
fn narrow(widths: &mut [usize], room: usize) {
    let line = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    let mut over = line.saturating_sub(room);
    let mut columns: Vec<_> = widths.iter_mut().skip(1).collect();
    columns.sort_unstable_by_key(|width| Reverse(**width));
    for width in columns {
        let less = over.min(width.saturating_sub(LEAST));
        *width -= less;
        over -= less;
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
        let table = fitted(&ROWS, None);
        assert_eq!(table.lines().count(), 3);
        assert_eq!(table.lines().next(), Some("DEVICE    DEPLOYMENT  REASON"));
        assert_eq!(fitted(&ROWS, Some(200)), table);
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
        assert_eq!(fitted(&ROWS, Some(40)), expected);
        // Too little room for all of them.
        let narrow = fitted(&ROWS, Some(5));
        assert!(narrow.lines().all(|line| line.chars().count() <= 8 + 2 * GAP + 2 * LEAST), "{narrow}");
        let about: Vec<_> = narrow.lines().filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(about.len(), 3, "{narrow}");
    }
}

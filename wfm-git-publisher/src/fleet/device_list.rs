//! Many devices in one file, as a spreadsheet or another program writes them: CSV, or JSON.

use std::collections::BTreeMap;

use repo_model::DeviceId;
use repo_model::problem::{Problem, Problems};
use repo_model::yaml::{Context, Field, Limits, Node, Scalar, Span, Strictness, Style, Value, parse_json};

use super::labels;
use super::place::{Place, placed};

/// A device that a file lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDevice {
    pub id: DeviceId,
    /// Where its id stands.
    pub place: Place,
    pub labels: BTreeMap<String, String>,
}

/// Reads them: JSON, a list of `{id, labels?}`, if the file begins with `[`; else CSV (RFC 4180) whose first line names
/// the columns, `id` among them, each of the others a label. An empty cell is no label. Every problem is told.
pub fn read_device_list(file: &str, bytes: &[u8]) -> Result<Vec<ListedDevice>, Problems> {
    let is_json = bytes.trim_ascii_start().first() == Some(&b'[');
    let node = if is_json { parse_json(file, bytes, &Limits::VENDOR)? } else { parse_csv(file, bytes)? };
    let context = Context::new(file, Strictness::Fleet);
    let listed = context.field(&node).list(one);
    let mut problems = context.into_problems();
    let listed = listed.unwrap_or_default();
    let mut seen = BTreeMap::new();
    for device in &listed {
        if let Some(first) = seen.insert(&device.id, &device.place) {
            let (id, line) = (&device.id, first.line);
            problems.push(device.place.problem(format!("`{id}` stands in line {line}, too")));
        }
    }
    if listed.is_empty() && !problems.has_errors() {
        problems.push(Problem::error(file, "lists no device"));
    }
    if problems.has_errors() { Err(problems) } else { Ok(listed) }
}

fn one(field: Field<'_>) -> Option<ListedDevice> {
    field.mapping(|reader| {
        let id = reader.required("id", placed);
        let labels = reader.optional("labels", labels::read).unwrap_or_default();
        let (id, place) = id?;
        Some(ListedDevice { id, place, labels })
    })
}

/// The rows of a CSV as the same nodes that JSON has, with the places of the cells.
fn parse_csv(file: &str, bytes: &[u8]) -> Result<Node, Problem> {
    if bytes.len() > Limits::VENDOR.bytes {
        return Err(Problem::error(file, format!("has more than {} bytes", Limits::VENDOR.bytes)));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::error(file, "is not UTF-8"))?;
    let mut rows = rows(file, text.strip_prefix('\u{feff}').unwrap_or(text))?.into_iter();
    let head = rows.next().ok_or_else(|| Problem::error(file, "lists no device"))?;
    if !head.iter().any(|cell| cell.text() == Some("id")) {
        let hint = "the first line names the columns: `id,site,line`; all but `id` are labels";
        return Err(Problem::error(file, "has no column `id`").at(1, 1).hint(hint));
    }
    for (index, cell) in head.iter().enumerate() {
        if head[..index].iter().any(|other| other.text() == cell.text()) {
            let name = cell.text().unwrap_or_default();
            return Err(problem(file, cell.span, format!("names the column `{name}` twice")));
        }
    }
    let mut devices = Vec::new();
    for row in rows {
        let span = row.first().map_or(Span::default(), |cell| cell.span);
        if row.len() != head.len() {
            let found = format!("has {} cells, and the first line {}", row.len(), head.len());
            return Err(problem(file, span, found));
        }
        let (mut device, mut labels) = (Vec::new(), Vec::new());
        for (name, cell) in head.iter().zip(row) {
            match name.text() {
                Some("id") => device.push((name.clone(), cell)),
                _ if cell.text() == Some("") => {}
                _ => labels.push((name.clone(), cell)),
            }
        }
        device.push((quoted("labels".to_owned(), span), Node { span, value: Value::Mapping(labels) }));
        devices.push(Node { span, value: Value::Mapping(device) });
    }
    Ok(Node { span: Span { line: 1, column: 1 }, value: Value::Sequence(devices) })
}

fn problem(file: &str, span: Span, message: impl Into<String>) -> Problem {
    Problem::error(file, message).at(span.line, span.column)
}

fn quoted(text: String, span: Span) -> Node {
    Node { span, value: Value::Scalar(Scalar { text, style: Style::Quoted }) }
}

/// The cells of each line that isn't empty. A cell in `"` may hold commas, lines, and `""` for one `"`; around others space
/// doesn't count.
fn rows(file: &str, text: &str) -> Result<Vec<Vec<Node>>, Problem> {
    let (mut rows, mut row) = (Vec::new(), Vec::new());
    let mut place = Span { line: 1, column: 1 };
    let mut rest = text.chars().peekable();
    // Each turn reads one cell, and what ends it.
    while rest.peek().is_some() {
        let start = place;
        let mut cell = String::new();
        let is_quoted = rest.peek() == Some(&'"');
        let (mut is_open, mut has_just_closed, mut end) = (is_quoted, false, None);
        if is_quoted {
            rest.next();
            place.column += 1;
        }
        for c in rest.by_ref() {
            let here = place;
            (place.line, place.column) = if c == '\n' { (place.line + 1, 1) } else { (place.line, place.column + 1) };
            match c {
                '"' if is_open => (is_open, has_just_closed) = (false, true),
                // The second of two: it was one of the text's.
                '"' if has_just_closed => {
                    (is_open, has_just_closed) = (true, false);
                    cell.push('"');
                }
                '"' => {
                    return Err(problem(
                        file,
                        here,
                        "has a `\"` inside a cell; put the cell in `\"`, and this one twice",
                    ));
                }
                ',' | '\n' if !is_open => {
                    end = Some(c);
                    break;
                }
                '\r' if !is_open => {}
                c if is_quoted && !is_open && !c.is_whitespace() => {
                    return Err(problem(file, here, "goes on behind the `\"` that ends the cell"));
                }
                _ if is_quoted && !is_open => has_just_closed = false,
                c => cell.push(c),
            }
        }
        if is_open {
            return Err(problem(file, start, "begins with a `\"` that nothing ends"));
        }
        let cell = if is_quoted { cell } else { cell.trim().to_owned() };
        row.push(quoted(cell, start));
        if end != Some(',') {
            let is_empty = row.len() == 1 && row[0].text() == Some("");
            let done = std::mem::take(&mut row);
            if !is_empty {
                rows.push(done);
            }
        } else if rest.peek().is_none() {
            row.push(quoted(String::new(), place));
        }
    }
    if !row.is_empty() {
        rows.push(row);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let told = |problems: Problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let shown = |device: ListedDevice| {
            let labels: Vec<_> = device.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            (device.id.to_string(), labels.join(","))
        };
        read_device_list("d", text.as_bytes()).map(|all| all.into_iter().map(shown).collect()).map_err(told)
    }

    #[test]
    fn a_table_and_a_document_say_the_same() {
        let expected = [("press-01", "line=1,site=graz"), ("press-02", "site=linz"), ("a/b", "")];
        let expected: Vec<_> = expected.iter().map(|(id, labels)| ((*id).to_owned(), (*labels).to_owned())).collect();
        let tables = [
            "id,site,line\npress-01,graz,1\npress-02,linz,\na/b,,\n",
            "\u{feff}site, id ,line\r\ngraz, press-01 ,1\r\n\r\nlinz,press-02,\r\n,a/b,",
            "\"id\",\"site\",\"line\"\n\"press-01\",\"graz\",\"1\"\npress-02,linz,\"\"\na/b,,",
        ];
        for table in tables {
            assert_eq!(read(table), Ok(expected.clone()), "{table}");
        }
        assert_eq!(read("id,site\n\"a\" ,\"b\"\n"), Ok(vec![("a".to_owned(), "site=b".to_owned())]));
        assert!(read("id,\"a \"\"label\"\"\"\nx,y\n").unwrap_err().contains("`a \"label\"` is not a label's name"));
        let document = r#"[{"id": "press-01", "labels": {"site": "graz", "line": "1"}},
            {"id": "press-02", "labels": {"site": "linz"}}, {"id": "a/b"}]"#;
        assert_eq!(read(document), Ok(expected));
    }

    #[test]
    fn each_mistake_is_told_with_its_line_and_column() {
        for (text, told) in [
            ("", "d: lists no device"),
            ("id\n", "d: lists no device"),
            ("[]", "d: lists no device"),
            ("name,site\na,b\n", "d:1:1: has no column `id`"),
            ("id,site,site\na,b,c\n", "d:1:9: names the column `site` twice"),
            ("id,site\na,b,c\n", "d:2:1: has 3 cells, and the first line 2"),
            ("id,site\na,\"b\n", "d:2:3: begins with a `\"` that nothing ends"),
            ("id,site\na,b\"c\n", "d:2:4: has a `\"` inside a cell; put the cell in `\"`, and this one twice"),
            ("id,site\na,\"b\"c\n", "d:2:6: goes on behind the `\"` that ends the cell"),
            ("id,site\na,\"b\" \"c\"\n", "d:2:7: has a `\"` inside a cell; put the cell in `\"`, and this one twice"),
            ("id\na\nb\na\n", "d:4:1: [2].id: `a` stands in line 2, too"),
        ] {
            assert_eq!(read(text), Err(told.to_owned()), "{text}");
        }
        // All of them at once.
        let all = read("id,site\n,graz\na,not a label\n-x,b\n").unwrap_err();
        for place in ["d:2:1: [0].id", "d:3:3: [1].labels.site"] {
            assert!(all.contains(place), "{all}");
        }
        assert!(read("[{\"id\": \"a\", \"label\": {}}]").unwrap_err().contains("label"));
        assert_eq!(read_device_list("d", b"id\n\xff\n").unwrap_err().to_owned().0[0].to_string(), "d: is not UTF-8");
    }
}

//! Reads the prose of a file: comments, messages, names of tests, pages. A code span, a quotation or a URL counts as one
//! word, a code block as none.

/// The rules depend on the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A paragraph of a page.
    Page,
    /// A heading, or a cell of a table's first row.
    Heading,
    /// A doc comment in Rust. Help texts and descriptions of CRDs are generated from these.
    Doc,
    Comment,
    Message,
    /// The name of a test, with spaces between its words.
    Name,
}

impl Kind {
    /// Whether the length of sentences counts.
    pub fn has_limit(self) -> bool {
        matches!(self, Self::Page | Self::Doc)
    }
}

/// A paragraph, a cell of a table, a message or a name.
pub struct Prose {
    /// Its first line, counted from 1.
    pub line: usize,
    pub kind: Kind,
    pub text: String,
}

/// The prose of a file, by its path in the repository. `None` if the check does not read such files.
pub fn of_file(path: &str, text: &str) -> Option<Vec<Prose>> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_unit =
        ["systemd/", "image/root/", "image/tenant-root/", "packer/"].iter().any(|start| path.starts_with(start));
    let mut found = Vec::new();
    match extension {
        "rs" | "go" => of_code(path, text, &mut found),
        // Only the words of the changelog count, not the length of its sentences.
        "md" if name.starts_with("CHANGELOG") => of_markdown(&numbered(text), Kind::Comment, &mut found),
        "md" => of_markdown(&numbered(text), Kind::Page, &mut found),
        "toml" | "tf" | "hcl" | "yml" => of_settings(text, &mut found),
        "yaml" if path.starts_with("agent/") => of_settings(text, &mut found),
        // Other `.yaml` files are generated from doc comments, or upstream's.
        _ if path.starts_with(".ci/") || name == "Makefile" || is_unit && extension != "yaml" => {
            of_settings(text, &mut found)
        }
        _ => return None,
    }
    Some(found)
}

fn numbered(text: &str) -> Vec<(usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect()
}

/// Pushes the paragraphs of a page or a comment, without code blocks and generated tables.
fn of_markdown(lines: &[(usize, &str)], kind: Kind, found: &mut Vec<Prose>) {
    let mut paragraph: Vec<(usize, &str)> = Vec::new();
    let (mut is_fenced, mut is_generated, mut is_code, mut after_blank) = (false, false, false, true);
    for (at, (number, line)) in lines.iter().enumerate() {
        let bare = line.trim_start();
        let was_blank = std::mem::replace(&mut after_blank, bare.is_empty());
        is_code =
            bare.is_empty() && is_code || (was_blank || is_code) && !bare.is_empty() && line.len() - bare.len() >= 4;
        let is_fence = bare.starts_with("```");
        let is_mark = bare.starts_with("<!--");
        if is_mark {
            is_generated = bare.contains(":begin");
        }
        is_fenced ^= is_fence;
        let is_out = is_fence || is_fenced || is_generated || is_mark || is_code;
        let is_row = bare.starts_with('|');
        let is_heading = bare.starts_with('#');
        let item = item(bare);
        if is_out || bare.is_empty() || is_row || is_heading || item.is_some() {
            push(std::mem::take(&mut paragraph), kind, found);
        }
        if is_out || bare.is_empty() {
            continue;
        }
        if is_row {
            let next = lines.get(at + 1).map_or("", |(_, line)| line.trim_start());
            let is_head = next.starts_with('|') && next.chars().all(|c| "|-: ".contains(c));
            let cells = stripped(&bare.replace("\\|", "/"));
            for cell in cells.split('|').filter(|cell| cell.contains(char::is_alphanumeric)) {
                let kind = if is_head { Kind::Heading } else { kind };
                found.push(Prose { line: *number, kind, text: cell.trim().to_owned() });
            }
        } else if is_heading {
            push(vec![(*number, bare.trim_start_matches('#'))], Kind::Heading, found);
        } else {
            paragraph.push((*number, item.unwrap_or(bare)));
        }
    }
    push(paragraph, kind, found);
}

/// The text of a list's item.
fn item(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let after_number = number.strip_prefix(". ").filter(|_| number.len() < line.len());
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or(after_number)
}

fn push(lines: Vec<(usize, &str)>, kind: Kind, found: &mut Vec<Prose>) {
    let Some((line, _)) = lines.first() else { return };
    let text = stripped(&lines.iter().map(|(_, line)| *line).collect::<Vec<_>>().join("\n"));
    if text.contains(char::is_alphanumeric) {
        found.push(Prose { line: *line, kind, text });
    }
}

/// Replaces each code span, quotation, URL and placeholder by `_`, and each link by its text.
fn stripped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['`', '"', '“', '\'', '<', ']', ':']) {
        let (before, from) = rest.split_at(at);
        out += before;
        let mark = from.chars().next().unwrap_or_default();
        let after = &from[mark.len_utf8()..];
        // The length of the replaced text.
        let length = match mark {
            '`' => {
                let ticks = &from[..from.len() - from.trim_start_matches('`').len()];
                from[ticks.len()..].find(ticks).map(|end| end + 2 * ticks.len())
            }
            '"' => after.find('"').map(|end| end + 2),
            '“' => after.find('”').map(|end| mark.len_utf8() + end + '”'.len_utf8()),
            // An apostrophe begins no quotation.
            '\'' if before.ends_with(char::is_alphanumeric) => None,
            '\'' => after.find('\'').filter(|end| *end > 0 && !after[..*end].contains(' ')).map(|end| end + 2),
            '<' if after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') => {
                after.find('>').map(|end| end + 2)
            }
            ']' if after.starts_with('(') => after.find(')').map(|end| end + 2),
            ':' if after.starts_with("//") => Some(from.find([' ', '\n', ')']).unwrap_or(from.len())),
            _ => None,
        };
        let length = length.filter(|length| !from[..*length].contains("\n\n"));
        let (left_out, left) = from.split_at(length.unwrap_or(mark.len_utf8()));
        match (length, mark) {
            (None, '`' | '"') => {}
            (None, _) => out.push(mark),
            (Some(_), ']' | ':') => {}
            (Some(_), '<') if is_tag(left_out) => {}
            (Some(_), _) => out.push('_'),
        }
        // Keeps the count of lines.
        out.extend(left_out.matches('\n'));
        rest = left;
    }
    out + rest
}

fn is_tag(text: &str) -> bool {
    ["<a ", "</", "<br", "<details", "<summary", "<sub", "<sup"].iter().any(|start| text.starts_with(start))
}

enum Lexeme<'t> {
    Comment(&'t str),
    /// The content of a string.
    Text(&'t str),
    RawText(&'t str),
}

/// Pushes the comments, messages and names of tests in Rust, and the comments in Go.
fn of_code(path: &str, text: &str, found: &mut Vec<Prose>) {
    let is_rust = path.ends_with(".rs");
    let messages_end = if is_rust { messages_end(path, text) } else { 0 };
    let mut comments: Vec<(usize, Kind, &str)> = Vec::new();
    let (mut line, mut counted) = (1, 0);
    for (begin, lexeme) in lexemes(text, is_rust) {
        line += text[counted..begin].matches('\n').count();
        counted = begin;
        match lexeme {
            Lexeme::Comment(comment) => {
                let is_alone = text[..begin].rsplit('\n').next().unwrap_or_default().trim().is_empty();
                let (kind, comment) = comment_of(comment, is_rust);
                let continues = comments.last().is_some_and(|(last, other, _)| last + 1 == line && *other == kind);
                if !is_alone || !continues {
                    push_comments(&mut comments, found);
                }
                comments.push((line, kind, comment));
                if !is_alone {
                    push_comments(&mut comments, found);
                }
            }
            // Strings with line breaks are scripts or files, unless a backslash escapes these.
            Lexeme::RawText(content) if begin < messages_end && !content.contains('\n') => {
                push_message(line, content, found);
            }
            Lexeme::Text(content) if begin < messages_end && !content.replace("\\\n", "").contains('\n') => {
                let mut line = line;
                for part in content.split("\\n") {
                    push_message(line, &unescaped(part), found);
                    line += part.matches('\n').count();
                }
            }
            Lexeme::Text(_) | Lexeme::RawText(_) => {}
        }
    }
    push_comments(&mut comments, found);
    if is_rust {
        names(path, text, found);
    }
}

/// The comments and strings of a source, each with its position.
fn lexemes(text: &str, is_rust: bool) -> Vec<(usize, Lexeme<'_>)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begin = at;
        match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
                found.push((begin, Lexeme::Comment(&text[begin..at])));
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at += text[at..].find("*/").map_or(text.len() - at, |end| end + 2);
            }
            b'`' if !is_rust => at = text[at + 1..].find('`').map_or(text.len(), |length| at + length + 2),
            b'"' => {
                at = end_of_string(bytes, at);
                found.push((begin, Lexeme::Text(&text[begin + 1..at.max(begin + 2) - 1])));
            }
            b'\'' => at = end_of_letter(text, at, is_rust),
            letter if letter.is_ascii_alphanumeric() || letter == b'_' => {
                let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
                at += bytes[at..].iter().take_while(is_part).count();
                let marks = bytes[at..].iter().take_while(|byte| **byte == b'#').count();
                let is_raw = is_rust && ["r", "br", "cr"].contains(&&text[begin..at]);
                if is_raw && bytes.get(at + marks) == Some(&b'"') {
                    let (content, end) = (at + marks + 1, format!("\"{}", "#".repeat(marks)));
                    let length = text[content..].find(&end).unwrap_or(text.len() - content);
                    found.push((begin, Lexeme::RawText(&text[content..content + length])));
                    at = (content + length + end.len()).min(text.len());
                }
            }
            _ => at += 1,
        }
    }
    found
}

fn comment_of(comment: &str, is_rust: bool) -> (Kind, &str) {
    let doc = ["///", "//!"].iter().find_map(|mark| comment.strip_prefix(mark));
    match doc.filter(|doc| is_rust && !doc.starts_with('/')) {
        Some(doc) => (Kind::Doc, doc.strip_prefix(' ').unwrap_or(doc)),
        None => (Kind::Comment, comment[2..].strip_prefix(' ').unwrap_or(&comment[2..])),
    }
}

fn push_comments(comments: &mut Vec<(usize, Kind, &str)>, found: &mut Vec<Prose>) {
    if let Some((_, kind, _)) = comments.first() {
        let lines: Vec<(usize, &str)> = comments.iter().map(|(line, _, text)| (*line, *text)).collect();
        of_markdown(&lines, *kind, found);
    }
    comments.clear();
}

/// The position where the messages of a file in Rust end. Strings in tests are no messages.
fn messages_end(path: &str, text: &str) -> usize {
    let is_test = path.starts_with("tests/") || path.starts_with("testbed/") || path.contains("/tests/");
    if is_test || path.ends_with("/tests.rs") || path.ends_with("_tests.rs") {
        return 0;
    }
    let is_module = |rest: &str| {
        let line = rest.lines().nth(1).unwrap_or_default();
        line.contains("mod ") && line.ends_with('{')
    };
    text.match_indices("#[cfg(test)]\n").find(|(at, _)| is_module(&text[*at..])).map_or(text.len(), |(at, _)| at)
}

/// The position after the string that begins at a quotation mark.
fn end_of_string(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += 1 + usize::from(bytes[at] == b'\\');
    }
    (at + 1).min(bytes.len())
}

/// The position after a character literal, or after the mark of a lifetime.
fn end_of_letter(text: &str, begin: usize, is_rust: bool) -> usize {
    let rest = &text[begin + 1..];
    let letter = rest.chars().next().map_or(0, char::len_utf8);
    if rest.starts_with('\\') || !is_rust {
        let escaped = 2 * usize::from(rest.starts_with('\\'));
        return rest
            .get(escaped..)
            .and_then(|rest| rest.find('\''))
            .map_or(text.len(), |end| begin + escaped + end + 2);
    }
    begin + 1 + if rest[letter..].starts_with('\'') { letter + 1 } else { 0 }
}

/// The text of a string. Line breaks stay, so that lines can be counted.
fn unescaped(literal: &str) -> String {
    let mut text = String::with_capacity(literal.len());
    let mut letters = literal.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => text.extend(letters.next().filter(|next| !next.is_ascii_alphabetic())),
            letter => text.push(letter),
        }
    }
    text
}

/// Pushes a string that is a message: it has a space and a word in lower case.
fn push_message(line: usize, literal: &str, found: &mut Vec<Prose>) {
    let is_word = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase());
    if !literal.trim().contains(' ') || !literal.split_whitespace().any(is_word) {
        return;
    }
    let mut text = String::with_capacity(literal.len());
    let mut depth = 0;
    for letter in literal.chars() {
        match letter {
            '{' => {
                depth += 1;
                text.push('_');
            }
            '}' => depth = (depth - 1).max(0),
            '\n' => text.push('\n'),
            letter if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    found.push(Prose { line, kind: Kind::Message, text: stripped(&text) });
}

/// Pushes the names of tests and scenarios.
fn names(path: &str, text: &str, found: &mut Vec<Prose>) {
    let is_scenario = path.starts_with("tests/tests/lab/");
    let mut is_test = false;
    for (number, line) in numbered(text) {
        let bare = line.trim_start();
        if bare.starts_with("#[test]") || bare.starts_with("#[tokio::test") {
            is_test = true;
        } else if !bare.starts_with(['#', '/']) {
            let function = bare.strip_prefix("pub ").unwrap_or(bare);
            let function = function.strip_prefix("async ").unwrap_or(function).strip_prefix("fn ");
            let is_named = is_test || is_scenario && bare.starts_with("pub fn ");
            if let Some((name, _)) = function.filter(|_| is_named).and_then(|rest| rest.split_once(['(', '<'])) {
                found.push(Prose { line: number, kind: Kind::Name, text: name.replace('_', " ") });
            }
            is_test = false;
        }
    }
}

/// Pushes the comments of settings, units and scripts, and the texts of settings.
fn of_settings(text: &str, found: &mut Vec<Prose>) {
    let mut comments: Vec<(usize, Kind, &str)> = Vec::new();
    for (number, line) in numbered(text) {
        let bare = line.trim_start();
        if let Some(comment) = bare.strip_prefix('#').filter(|comment| !comment.starts_with('!')) {
            let comment = comment.trim_start_matches('#');
            comments.push((number, Kind::Comment, comment.strip_prefix(' ').unwrap_or(comment)));
            continue;
        }
        push_comments(&mut comments, found);
        let behind = [" ## ", " # "].iter().find_map(|mark| line.split_once(mark));
        let (code, comment) = behind.filter(|(code, _)| code.matches('"').count() % 2 == 0).unwrap_or((line, ""));
        push(vec![(number, comment)], Kind::Comment, found);
        let text = code.trim_end().split_once(" = \"").and_then(|(_, text)| text.strip_suffix('"'));
        text.or(code.strip_prefix("Description=")).into_iter().for_each(|text| push_message(number, text, found));
    }
    push_comments(&mut comments, found);
}

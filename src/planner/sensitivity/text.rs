//! Text within the width of a terminal.

/// Longest line.
const WIDTH: usize = 98;

/// In lines of at most [`WIDTH`] characters.
pub(super) fn wrapped(text: &str) -> String {
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let width = word.chars().count();
        if length > 0 && length + 1 + width > WIDTH {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines += word;
        length += width;
    }
    lines
}

/// As much of a note as fits behind so many characters.
pub(super) fn first_line(note: &str, before: usize) -> String {
    let width = WIDTH.saturating_sub(before);
    let line = note.lines().next().unwrap_or_default();
    if line.chars().count() <= width {
        return line.into();
    }
    let cut: String = line.chars().take(width.saturating_sub(3)).collect();
    format!("{}...", cut.trim_end())
}

//! Hebrew that was read off the page from left to right.
//!
//! Some PDFs place Hebrew glyphs in the order of the eye, and a reader that follows it gets every word
//! backwards, so that no query finds it. Five Hebrew letters have a form of their own at the end of words:
//! where these stand at the start, the line is backwards.

/// Turns backward lines of a page into the order in which they are read and typed.
pub(super) fn logical_order(text: &str) -> String {
    if !is_backward(text) {
        return text.to_owned();
    }
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| if line.chars().any(is_hebrew) { turn(line) } else { line.to_owned() })
        .collect();
    lines.join("\n")
}

fn is_hebrew(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{5FF}' | '\u{FB1D}'..='\u{FB4F}')
}

fn is_final_form(c: char) -> bool {
    matches!(c, 'ך' | 'ם' | 'ן' | 'ף' | 'ץ')
}

/// Whether more words start with a final form than end with one.
fn is_backward(text: &str) -> bool {
    let mut backward = 0;
    let mut forward = 0;
    for word in text.split(|c| !is_hebrew(c)).filter(|word| word.chars().count() > 1) {
        backward += usize::from(word.chars().next().is_some_and(is_final_form));
        forward += usize::from(word.chars().next_back().is_some_and(is_final_form));
    }
    backward > forward
}

/// Reverses a line, but for numbers and words of scripts that run the other way.
fn turn(line: &str) -> String {
    let is_forward = |c: char| c.is_alphanumeric() && !is_hebrew(c);
    let mut turned = String::with_capacity(line.len());
    let mut forward = Vec::new();
    let reversed: Vec<char> = line.chars().rev().collect();
    for (at, c) in reversed.iter().copied().enumerate() {
        let next_is_forward = reversed.get(at + 1).is_some_and(|next| is_forward(*next));
        // `1,250` and `e-mail` stay whole.
        let is_inside =
            !forward.is_empty() && matches!(c, '.' | ',' | '-' | '/' | ':' | '@') && next_is_forward;
        if is_forward(c) || is_inside {
            forward.push(c);
            continue;
        }
        turned.extend(forward.drain(..).rev());
        turned.push(mirrored(c));
    }
    turned.extend(forward.drain(..).rev());
    turned
}

fn mirrored(c: char) -> char {
    match c {
        '(' => ')',
        ')' => '(',
        '[' => ']',
        ']' => '[',
        '{' => '}',
        '}' => '{',
        '<' => '>',
        '>' => '<',
        '«' => '»',
        '»' => '«',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::logical_order;

    #[test]
    fn a_backward_line_is_turned_and_its_numbers_are_not() {
        assert_eq!(logical_order("?םלוכ םולש 1,250 abc"), "abc 1,250 שלום כולם?");
    }

    #[test]
    fn a_line_in_reading_order_is_left_alone() {
        assert_eq!(logical_order("שלום עולם"), "שלום עולם");
    }
}

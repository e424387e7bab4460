//! What the command writes. What only accompanies work is written if it can be: a full disk, a closed pipe or a terminal
//! that is gone ends no work, least of all one that has a node away. What a script reads is written, or the command
//! fails.

use std::io::{self, Write};

use anyhow::Context;

/// Says how far something is, on standard output.
pub fn say(text: &str) {
    accompany(&mut io::stdout().lock(), text);
}

/// Says what is wrong, or where something has come to otherwise than was wanted, on standard error.
pub fn warn(text: &str) {
    accompany(&mut io::stderr().lock(), text);
}

/// Writes what was asked for, on standard output.
///
/// # Errors
/// When not all of it could be written.
pub fn result(text: &str) -> anyhow::Result<()> {
    hand_over(&mut io::stdout().lock(), text)
}

/// A line, if it can be written.
fn accompany(to: &mut impl Write, text: &str) {
    let _ = writeln!(to, "{}", text.trim_end_matches('\n')).and_then(|()| to.flush());
}

fn hand_over(to: &mut impl Write, text: &str) -> anyhow::Result<()> {
    let written = writeln!(to, "{}", text.trim_end_matches('\n')).and_then(|()| to.flush());
    written.context("writing the result")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is full, or a pipe that nobody reads.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn progress_that_cannot_be_written_ends_nothing_and_a_result_that_cannot_be_is_an_error() {
        accompany(&mut Full, "1/9 verify the OVA");
        assert_eq!(hand_over(&mut Full, "{}").unwrap_err().to_string(), "writing the result");
        let mut text = Vec::new();
        accompany(&mut text, "a step");
        hand_over(&mut text, "a plan\n").unwrap();
        assert_eq!(text, b"a step\na plan\n");
    }
}

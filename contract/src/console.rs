//! Lines of a node's console that tell the hypervisor's side about the node.

/// The beginning of each line of the agent.
const OURS: &str = "kaas: ";

/// The rest of a line after `what`, if it is the agent's line about that. The kernel's words may precede it. Within another
/// line of the agent it is text of unknown origin, and does not count.
pub(crate) fn said<'a>(line: &'a str, what: &str) -> Option<&'a str> {
    let (_, ours) = line.trim_end().split_once(OURS)?;
    ours.strip_prefix(what.strip_prefix(OURS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_about_its_first_words() {
        assert_eq!(said("kaas: statement {}\r", "kaas: statement "), Some("{}"));
        assert_eq!(said("[ 1.0] kaas: statement {}", "kaas: statement "), Some("{}"));
        assert_eq!(said("kaas: joining (3/9): kaas: statement {}", "kaas: statement "), None);
        assert_eq!(said("statement {}", "kaas: statement "), None);
    }
}

//! Lines of a node's console by which whoever keeps the hypervisor knows something of the node.

/// What each line of the agent's begins with.
const OURS: &str = "kaas: ";

/// What a line says of `what`, if it is the agent's and about that. The kernel's words may stand before it; within another line
/// of the agent's it is what somebody else has said.
pub(crate) fn said<'a>(line: &'a str, what: &str) -> Option<&'a str> {
    let (_, ours) = line.trim_end().split_once(OURS)?;
    ours.strip_prefix(what.strip_prefix(OURS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_what_it_begins_with() {
        assert_eq!(said("kaas: statement {}\r", "kaas: statement "), Some("{}"));
        assert_eq!(said("[ 1.0] kaas: statement {}", "kaas: statement "), Some("{}"));
        assert_eq!(said("kaas: joining (3/9): kaas: statement {}", "kaas: statement "), None);
        assert_eq!(said("statement {}", "kaas: statement "), None);
    }
}

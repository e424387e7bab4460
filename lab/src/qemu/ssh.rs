//! Access to a virtual machine: SSH with the key from its properties, as an administrator of the product uses it.

use std::path::Path;

/// The arguments of `ssh` that run a program as root. Host keys are not checked: only the lab's own VMs are on the
/// network.
pub fn arguments(key: &Path, address: &str, program: &[&str]) -> Vec<String> {
    let mut all = vec!["-i".to_owned(), key.display().to_string()];
    for option in [
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        "IdentitiesOnly=yes",
        // Emulated guests take seconds for a handshake.
        "ConnectTimeout=30",
    ] {
        all.extend(["-o".to_owned(), option.to_owned()]);
    }
    all.extend([format!("admin@{address}"), "sudo -n --".to_owned()]);
    all.extend(program.iter().map(|argument| quote(argument)));
    all
}

/// The login shell on the other side splits words. Quotes keep one whole.
fn quote(argument: &str) -> String {
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_arrive_unchanged() {
        let all = arguments(Path::new("/k"), "192.168.77.11", &["echo", "it's", "$HOME"]);
        assert!(all.ends_with(&["'echo'".to_owned(), r"'it'\''s'".to_owned(), "'$HOME'".to_owned()]), "{all:?}");
        assert!(all.contains(&"admin@192.168.77.11".to_owned()));
    }
}

//! Completion of a command line at a shell's prompt. If candidates cannot be read in time, the shell gets none,
//! and no error.

use std::sync::mpsc::channel;
use std::time::Duration;

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

/// How long the operator waits at the prompt.
const LIMIT: Duration = Duration::from_secs(2);

/// Candidates from the words of the command line.
pub fn candidates(
    read: impl Fn(&[String]) -> anyhow::Result<Vec<String>> + Clone + Send + Sync + 'static,
) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let read = read.clone();
        let names = in_time(LIMIT, move || read(&words())).unwrap_or_default();
        names.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// The result of some work. `None` after an error, or if the work takes longer.
fn in_time<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> Option<T> {
    let (sender, receiver) = channel();
    // After the limit, this thread ends with the process.
    std::thread::spawn(move || drop(sender.send(work())));
    receiver.recv_timeout(limit).ok()?.ok()
}

/// The words of the command line that is completed. The script of a shell gives them after `--`.
fn words() -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The value of an option. The line is incomplete, so clap cannot parse it. Bash makes three words of `--namespace=blue`.
pub fn option(words: &[String], names: &[&str]) -> Option<String> {
    words.iter().enumerate().rev().find_map(|(at, word)| {
        let after = |count: usize| words.get(at + count).filter(|value| !value.is_empty());
        match word.split_once('=') {
            Some((name, value)) if names.contains(&name) => Some(value.to_owned()),
            None if names.contains(&word.as_str()) => match after(1) {
                Some(sign) if sign == "=" => after(2).cloned(),
                value => value.cloned(),
            },
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_is_found_in_an_incomplete_line() {
        let namespace = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            option(&words, &["--namespace", "-n"])
        };
        for line in ["kaas get -n blue ", "kaas get --namespace=blue", "kaas --namespace = blue x", "kaas -n=blue"] {
            assert_eq!(namespace(line).as_deref(), Some("blue"), "{line}");
        }
        for line in ["kaas cluster get ", "kaas cluster get -n ", "kaas cluster get --namespace"] {
            assert_eq!(namespace(line), None, "{line}");
        }
    }

    #[test]
    fn late_or_failed_work_has_no_result() {
        assert_eq!(in_time(Duration::from_secs(60), || Ok(1)), Some(1));
        assert_eq!(in_time::<u8>(Duration::from_secs(60), || anyhow::bail!("no kubeconfig")), None);
        let (_keeps_it_open, waits) = channel::<u8>();
        assert_eq!(in_time(Duration::from_millis(10), move || Ok(waits.recv()?)), None);
    }
}

//! The confirmation that a cluster is to go: its name, typed.

use std::io::{BufRead, Write};

use anyhow::bail;

use crate::cluster_file::ClusterFile;

/// Has a person type the cluster's name, unless it was given.
///
/// # Errors
/// Another name was given or typed: nothing was changed.
pub fn typed(file: &ClusterFile, given: Option<&str>, disks: bool) -> anyhow::Result<()> {
    let place = file.provider.words();
    let (from, to) = (&mut std::io::stdin().lock(), &mut std::io::stdout().lock());
    is_confirmed(&file.name.value, &place, given, disks, from, to)
}

fn is_confirmed(
    cluster: &str,
    place: &str,
    given: Option<&str>,
    disks: bool,
    from: &mut impl BufRead,
    to: &mut impl Write,
) -> anyhow::Result<()> {
    let mut answer = String::new();
    let confirmed = match given {
        Some(given) => given,
        None => {
            let and_disks = if disks { ", and its data disks with all that it knows" } else { "; its data disks stay" };
            writeln!(to, "All VMs of the cluster {cluster} in {place} are removed{and_disks}.")?;
            write!(to, "Type the cluster's name to confirm it: ")?;
            to.flush()?;
            from.read_line(&mut answer)?;
            answer.trim()
        }
    };
    if confirmed != cluster {
        bail!("not confirmed: the cluster is {cluster}; nothing was changed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_clusters_name_confirms() {
        let asked = |given: Option<&str>, answer: &str, disks| {
            let mut shown = Vec::new();
            let done = is_confirmed("control", "a lab", given, disks, &mut answer.as_bytes(), &mut shown);
            (done.map_err(|error| error.to_string()), String::from_utf8(shown).unwrap())
        };
        assert!(asked(None, "control\n", false).0.is_ok());
        assert!(asked(None, "control\n", false).1.contains("its data disks stay"));
        assert!(asked(None, "control\n", true).1.contains("with all that it knows"));
        assert_eq!(asked(Some("control"), "", true), (Ok(()), String::new()));
        for (given, answer) in [(None, ""), (None, "yes\n"), (None, "Control\n"), (Some("other"), "control\n")] {
            let refused = asked(given, answer, false).0.unwrap_err();
            assert_eq!(refused, "not confirmed: the cluster is control; nothing was changed");
        }
    }
}

//! The program begun anew in the same process. Its memory goes with the former image, and so do all threads and tasks; its descriptors
//! are closed, but for its input, its output and its errors (execve(2)). Nothing of a term outlives that, as when a process ends; but
//! whoever has started it sees it go on, and does not hold its next start back.

use std::convert::Infallible;
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;

use anyhow::Context;
use nix::sys::prctl;
use nix::unistd::execve;

/// The file that this process is of, whatever has become of its path (proc(5)). It is never the loader, which runs none of our programs
/// by being given its name.
const PROGRAM: &CStr = c"/proc/self/exe";
/// What the kernel calls the process. It goes by the file that was executed, which has another name then.
const NAME: &CStr = c"kaas-controller";

/// The variable that says so to the program that is begun anew.
const ANEW: &str = "KAAS_CONTROLLER_BEGUN_ANEW";

/// Whether this program was begun anew: it has led in this process before.
pub(super) fn was_re_executed() -> bool {
    std::env::var_os(ANEW).is_some()
}

/// Begins this program anew in its place, with its arguments and its environment, which says so. Signals that are held back and were not
/// read stay.
///
/// # Errors
/// That is not to be had: it goes on as it was.
pub fn re_exec() -> anyhow::Result<Infallible> {
    let arguments: Result<Vec<_>, _> = std::env::args_os().map(|argument| CString::new(argument.into_vec())).collect();
    let arguments = arguments.context("reading the arguments of this program")?;
    let others = std::env::vars_os().filter(|(name, _)| name != ANEW);
    let variable = |(mut text, value): (OsString, OsString)| {
        text.push("=");
        text.push(value);
        CString::new(text.into_vec())
    };
    let environment: Result<Vec<_>, _> = others.chain([(ANEW.into(), "1".into())]).map(variable).collect();
    let environment = environment.context("reading the environment of this program")?;
    execve(PROGRAM, &arguments, &environment).context("beginning this program anew")
}

/// Has the kernel call this process by its program's name.
pub fn name_process() -> anyhow::Result<()> {
    prctl::set_name(NAME).context("naming the process")
}

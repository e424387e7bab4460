//! Executes the program again in the same process. Memory, threads and tasks of the former image end. Descriptors are closed,
//! except standard input, output and error (execve(2)). Nothing of a term survives, as when a process ends. The container runtime
//! sees no exit, so its restart back-off does not apply.

use std::convert::Infallible;
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;

use anyhow::Context;
use nix::sys::prctl;
use nix::unistd::execve;

/// The file of this process, even if its path has changed (proc(5)). It is never the loader: none of our programs is started by
/// passing its name to the loader.
const PROGRAM: &CStr = c"/proc/self/exe";
/// The kernel's name of the process. The kernel takes it from the executed file, which here is `exe`.
const NAME: &CStr = c"kaas-controller";

/// The variable that tells the new image that it was executed again.
const ANEW: &str = "KAAS_CONTROLLER_BEGUN_ANEW";

/// Whether the program was executed again: then it has led in this process before.
pub(super) fn was_re_executed() -> bool {
    std::env::var_os(ANEW).is_some()
}

/// Executes this program again, with the same arguments and environment and the variable [`ANEW`]. Blocked signals that were not
/// read stay pending.
///
/// # Errors
/// The call failed: the process continues as before.
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
    execve(PROGRAM, &arguments, &environment).context("executing this program again")
}

/// Sets the kernel's name of the process to that of the program.
pub fn name_process() -> anyhow::Result<()> {
    prctl::set_name(NAME).context("naming the process")
}

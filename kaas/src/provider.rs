//! `kaas provider …`: what those need who run the machines that clusters stand on.

use clap::Subcommand;

use crate::output::result;

/// Commands on what runs VMs.
#[derive(Subcommand)]
pub enum Provider {
    /// Prints the privileges that the account of `[provider.vsphere]` needs, one a line: a role to import.
    ///
    /// With govc: `govc role.create kaas $(kaas provider role)`. With PowerCLI: `New-VIRole -Name kaas -Privilege (Get-VIPrivilege
    /// -Id (Get-Content FILE))`. docs/reference.md says what each is for, and on which object it is needed.
    Role,
}

/// Runs one of the commands.
///
/// # Errors
/// When it cannot be written.
pub fn run(command: &Provider) -> anyhow::Result<()> {
    match command {
        Provider::Role => result(&vsphere::role_file()),
    }
}

//! `kaas provider …`: the commands on Providers, for the operator of the platform.

mod probe;
mod provider_objects;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use clap::{Args, Subcommand};
use controller::objects::ProviderReason;
use serde_json::{Value, json};

use self::probe::{Probe, probe};
use self::provider_objects::{ProviderObjects, password};
use crate::control::{
    self, Cell, ControlClusterArgs, Look, PROVIDERS, Rejected, WaitArgs, WaitResult, Waiter, age, candidates,
    conditions, lines, name, table, text,
};
use crate::output::{Output, result};
use crate::styled::Text;

/// Commands on Providers
#[derive(Subcommand)]
pub enum Provider {
    /// Create or change a Provider with the Secret of its account, and wait until clusters can be created there
    #[command(after_help = "Example: `kaas provider create --file provider.yaml --user kaas@vsphere.local`")]
    Create(Create),
    /// List Providers, or show the state of one
    #[command(after_help = "Example: `kaas provider get dc1`")]
    Get(Get),
    /// Try in one folder of a vCenter what deployments assume of it, and remove what was made
    ///
    /// The account needs only the role that `kaas provider role` prints. The written file has no names and no addresses. Exit
    /// status 0: no row differs. 4: a row differs. 3: the probe was ended before the last row. 1: it failed.
    #[command(after_help = "Example: `kaas provider probe --file cluster.toml --to-file probe.json`")]
    Probe(Box<Probe>),
    /// Print the privileges that the account of `[provider.vsphere]` or of a Provider needs, one a line: a role to import
    ///
    /// With govc: `govc role.create kaas $(kaas provider role)`. With PowerCLI: `New-VIRole -Name kaas -Privilege
    /// (Get-VIPrivilege -Id (Get-Content FILE))`. docs/reference/privileges.md has the purpose of each privilege, and the object that it
    /// is needed on.
    #[command(after_help = "Example: `kaas provider role`")]
    Role,
}

#[derive(Args)]
pub struct Create {
    /// YAML file with one Provider. It may also have IPPools and VMClasses. docs/reference/objects.md has the fields
    #[arg(short, long, value_name = "FILE", required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Print an example of the file, and do nothing else
    #[arg(long, exclusive = true)]
    example: bool,
    /// User of the account, such as kaas@vsphere.local. Without it, the Secret that the Provider names is not changed
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// File with the user's password. Without it, the command asks for the password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Only let the API server check the objects. With `--output yaml`, print them without the Secret
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    at: ControlClusterArgs,
    #[command(flatten)]
    until: WaitArgs,
}

#[derive(Args)]
pub struct Get {
    /// Name of the Provider. Without it, all Providers are listed
    #[arg(value_parser = name, add = candidates::providers())]
    name: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    at: ControlClusterArgs,
}

/// Runs one of the commands. Exit statuses: 0 if the wanted state is reached, 3 if nothing has changed within the wait limit, 4
/// if the operator must act.
pub fn run(command: &Provider) -> anyhow::Result<ExitCode> {
    match command {
        Provider::Create(arguments) => create(arguments),
        Provider::Get(arguments) => get(arguments),
        Provider::Probe(arguments) => probe(arguments),
        Provider::Role => result(&vsphere::role_file()).map(|()| ExitCode::SUCCESS),
    }
}

const EXAMPLE: &str = include_str!("example.yaml");

/// For this long, a blocking condition may be from before the command: a new account does not change the Provider's generation.
const OF_BEFORE: Duration = Duration::from_secs(10);

fn create(arguments: &Create) -> anyhow::Result<ExitCode> {
    let Create { file, example, user, password_file, dry_run, at, until } = arguments;
    if *example {
        return result(EXAMPLE).map(|()| ExitCode::SUCCESS);
    }
    let mut wanted = ProviderObjects::read(file.as_deref().context("give the objects with --file")?)?;
    if let Some(user) = user {
        wanted = wanted.with_account(user, &password(password_file.as_deref(), user)?);
    }
    let control = at.open()?;
    let name = text(&wanted.provider, "/metadata/name");
    let before = control.get(PROVIDERS, name)?;
    // A dry run of all objects comes first. The Provider is applied last, because it names the others.
    let apply =
        |dry_run: bool| wanted.objects().try_for_each(|(of, object)| control.apply(of, object, dry_run).map(drop));
    apply(true)?;
    if *dry_run {
        let text = || format!("the API server accepts the Provider {name}");
        return until.output.objects(&wanted.described(), text);
    }
    apply(false)?;
    let taken = format!("the Provider {name} is asked for");
    let begun = Instant::now();
    let is_of_before = |object: &Value| {
        let stood = before.as_ref().is_some_and(|before| before["status"] == object["status"]);
        stood && begun.elapsed() < OF_BEFORE
    };
    Waiter::new(until).run(&taken, || {
        let gone = || Rejected::because(format!("the Provider {name} no longer exists"));
        let object = control.get(PROVIDERS, name)?.ok_or_else(gone)?;
        let come = match wait_result(&object) {
            WaitResult::Stopped(_) if is_of_before(&object) => WaitResult::Pending,
            come => come,
        };
        Ok(Look { lines: lines(&object), progress: come, object: json!({"provider": object}) })
    })
}

fn get(arguments: &Get) -> anyhow::Result<ExitCode> {
    let control = arguments.at.open()?;
    let now = SystemTime::now();
    let Some(name) = &arguments.name else {
        let providers = control.list(PROVIDERS)?;
        return arguments.output.result(&json!({"providers": providers}), || listed(&providers, now));
    };
    let gone = || Rejected::because(format!("there is no Provider {name}"));
    let provider = control.get(PROVIDERS, name)?.ok_or_else(gone)?;
    arguments.output.result(&provider, || {
        let mut text = listed(std::slice::from_ref(&provider), now);
        text.append(format!("\n\n{}", conditions(&provider)));
        text
    })
}

fn listed(providers: &[Value], now: SystemTime) -> Text {
    let row = |provider: &Value| {
        [
            Cell::text(text(provider, "/metadata/name")),
            Cell::text(text(provider, "/spec/vsphere/server")),
            Cell::status(provider, "Ready"),
            Cell::number(&provider["status"]["freeStorageGiB"]),
            Cell::number(&provider["status"]["clusters"]),
            Cell::text(&age(provider, now)),
        ]
    };
    table(["NAME", "SERVER", "READY", "FREE GIB", "CLUSTERS", "AGE"], providers.iter().map(row))
}

/// Whether clusters can be created on the Provider. The command waits for states that can end without the operator, such as a
/// server that does not answer yet.
fn wait_result(provider: &Value) -> WaitResult {
    let there = format!("clusters can be made on {}", text(provider, "/metadata/name"));
    control::wait_result::<ProviderReason>(provider, &["Ready"], there)
}

#[cfg(test)]
mod tests {
    use controller::objects::Reason;

    use super::*;

    fn provider(reasons: &[ProviderReason], judged: i64) -> Value {
        let condition = |reason: &ProviderReason| {
            json!({"type": reason.condition(), "status": format!("{:?}", reason.standing()), "reason": reason.word(),
                   "message": "as it is", "observedGeneration": judged})
        };
        let conditions: Vec<Value> = reasons.iter().map(condition).collect();
        json!({"metadata": {"name": "dc1", "generation": 2}, "status": {"conditions": conditions}})
    }

    #[test]
    fn wait_ends_for_reasons_that_need_the_operator() {
        let come = |reasons: &[ProviderReason], judged| super::wait_result(&provider(reasons, judged));
        assert_eq!(come(&[ProviderReason::Available], 2), WaitResult::Ready("clusters can be made on dc1".to_owned()));
        assert_eq!(come(&[ProviderReason::Available], 1), WaitResult::Pending);
        assert_eq!(come(&[], 2), WaitResult::Pending);
        assert_eq!(come(&[ProviderReason::Unreachable, ProviderReason::NotReady], 2), WaitResult::Pending);
        assert_eq!(come(&[ProviderReason::NotKnown], 2), WaitResult::Pending);
        let refused = come(&[ProviderReason::LoginRefused, ProviderReason::NotReady], 2);
        assert_eq!(refused, WaitResult::Stopped("dc1: Authenticated is False (LoginRefused): as it is".to_owned()));
        // An old condition, of the account before.
        assert_eq!(come(&[ProviderReason::LoginRefused], 1), WaitResult::Pending);
    }
}

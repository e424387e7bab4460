//! `kaas explain`: the meaning of each code, and the usual remedy. The tables of the code are the source.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use controller::objects::all;
use fleet::engine::Code;
use fleet::{CODE_TABLES, CodeTable};
use schemars::JsonSchema;
use serde::Serialize;

use crate::control::{Cell, table};
use crate::output::Output;
use crate::styled::Text;

#[derive(Args)]
pub struct Explain {
    /// Code of a finding, a refusal or a reason, such as disk.foreign or LoginRefused. Without it, all codes are listed
    #[arg(add = codes())]
    code: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// All codes, which a shell completes.
fn codes() -> ArgValueCandidates {
    let code = |one: Explanation| CompletionCandidate::new(one.code).help(Some(one.of.into()));
    ArgValueCandidates::new(move || explanations().into_iter().map(code).collect())
}

/// The output of the command.
#[derive(Serialize, JsonSchema)]
pub struct Explanations {
    codes: Vec<Explanation>,
}

/// A code with its explanation.
#[derive(Serialize, JsonSchema)]
struct Explanation {
    code: &'static str,
    /// Where the code occurs.
    of: String,
    meaning: &'static str,
    /// Missing for the reasons of objects, whose meaning includes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
}

/// Explains one code, or lists all.
pub fn run(arguments: &Explain) -> anyhow::Result<ExitCode> {
    let mut found = Explanations { codes: explanations() };
    let Some(code) = &arguments.code else {
        return arguments.output.result(&found, || list(&found.codes));
    };
    found.codes.retain(|one| one.code.eq_ignore_ascii_case(code));
    if found.codes.is_empty() {
        bail!("there is no code {code}\nhelp: `kaas explain` lists all codes");
    }
    let text = || found.codes.iter().map(Explanation::text).collect::<Vec<_>>().join("\n\n");
    arguments.output.result(&found, text)
}

/// All codes, in the order of the reference.
fn explanations() -> Vec<Explanation> {
    let finding = |code: &contract::codes::Code| Explanation {
        code: code.code,
        of: format!("finding of a node, {}", code.severity),
        meaning: code.meaning,
        action: Some(code.action),
    };
    let mut all_codes: Vec<Explanation> = contract::codes::CODES.iter().map(finding).collect();
    for CodeTable { of, codes, .. } in CODE_TABLES {
        let explained = |code: &Code| Explanation {
            code: code.code,
            of: of.to_owned(),
            meaning: code.meaning,
            action: Some(code.action),
        };
        all_codes.extend(codes.iter().map(explained));
    }
    for kind in all() {
        let name = kind.definition.spec.names.kind;
        for condition in kind.conditions {
            let of = |status: &str| format!("reason of a {name}, {} is {status}", condition.condition);
            let explained = condition.reasons.into_iter().map(|(code, status, meaning)| Explanation {
                code,
                of: of(&format!("{status:?}")),
                meaning,
                action: None,
            });
            all_codes.extend(explained);
        }
    }
    all_codes
}

impl Explanation {
    fn text(&self) -> String {
        let Self { code, of, meaning, action } = self;
        let action = action.map(|action| format!("\n\nRemedy: {action}")).unwrap_or_default();
        format!("{code} ({of})\n\n{meaning}{action}")
    }
}

fn list(all: &[Explanation]) -> Text {
    table(["CODE", "OF"], all.iter().map(|one| [one.code, one.of.as_str()].map(Cell::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(code: &str) -> String {
        let all = explanations();
        let found: Vec<String> = all.iter().filter(|one| one.code == code).map(Explanation::text).collect();
        found.join("\n")
    }

    #[test]
    fn each_kind_of_code_is_explained() {
        assert_eq!(
            text("disk.too-small"),
            "disk.too-small (finding of a node, error)\n\nThe data disk is smaller than 4 GiB.\n\n\
             Remedy: Enlarge the data disk to at least 4 GiB."
        );
        assert!(
            text("upgrade.downgrade").contains("refusal of an upgrade") && text("upgrade.ova").contains("Give the OVA")
        );
        assert!(text("workers.surplus").contains("reason of workers") && text("store.unavailable").contains("resume"));
        assert!(text("deploy.forming").contains("reason of a control cluster"));
        let refused = text("LoginRefused");
        assert!(refused.starts_with("LoginRefused (reason of a Provider, Authenticated is False)"), "{refused}");
        assert!(!refused.contains("Remedy"), "{refused}");
    }

    #[test]
    fn remedies_are_sentences() {
        for one in explanations() {
            let is_sentence = |text: &str| text.starts_with(char::is_uppercase) && text.ends_with('.');
            assert!(one.action.is_none_or(is_sentence), "{}: {:?}", one.code, one.action);
        }
    }
}

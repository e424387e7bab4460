//! `kaas-agent validate`: the checks of the first boot, for operators and tests, on any machine.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context;
use clap::ValueEnum;
use contract::finding::{Finding, Findings, Severity};
use contract::image::ImageFacts;
use contract::secret::Secret;
use serde_json::json;

use super::{Config, ControlPlane, Worker, validate};
use crate::intake::environment::source;

/// Output format
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Plain text
    Text,
    /// One JSON object
    Json,
}

/// Validates an OVF environment against an image. `environment` is a file with the XML document, an ISO 9660 image with
/// it, or `-` for `stdin`. `image` is an image's `image.json`. Writes the result to `stdout`, without secrets. True if
/// the environment is valid: the exit status is 0 or 1.
pub fn validate_command(
    environment: &Path,
    image: &Path,
    output: Output,
    stdin: &mut dyn Read,
    stdout: &mut dyn Write,
    now: SystemTime,
) -> anyhow::Result<bool> {
    let content = if environment == Path::new("-") {
        source::read_limited(stdin).context("reading the OVF environment from standard input")?
    } else {
        File::open(environment)
            .and_then(|mut file| source::read_limited(&mut file))
            .with_context(|| format!("reading the OVF environment {}", environment.display()))?
    };
    let facts = fs::read(image).with_context(|| format!("reading the image's description {}", image.display()))?;
    let image: ImageFacts =
        serde_json::from_slice(&facts).with_context(|| format!("understanding {}", image.display()))?;
    let name = environment.display().to_string();
    let result = source::from_content(&content, &name).and_then(|document| validate(&document, &image, now));
    let (config, findings) = match result {
        Ok(intake) => (Some(redacted(intake.config)), intake.warnings),
        Err(findings) => (None, findings),
    };
    let valid = config.is_some();
    match output {
        Output::Text => write!(stdout, "{}", describe(&findings)),
        Output::Json => {
            writeln!(stdout, "{:#}", json!({ "valid": valid, "findings": findings, "config": config }))
        }
    }
    .context("writing the result")?;
    Ok(valid)
}

/// The configuration without values that may be secret.
fn redacted(mut config: Config) -> Config {
    let hidden = |url: &mut String| {
        if let (Some((scheme, _)), Some((_, host))) = (url.split_once("://"), url.rsplit_once('@')) {
            *url = format!("{scheme}://hidden@{host}");
        }
    };
    let node = match &mut config {
        Config::ControlPlane(ControlPlane { node, snapshot_target, .. }) => {
            if let Some(target) = snapshot_target {
                let mut url = target.expose().to_owned();
                hidden(&mut url);
                *target = Secret::new(url);
            }
            node
        }
        Config::Worker(Worker { node, .. }) => node,
    };
    if let Some(proxy) = &mut node.proxy {
        proxy.http.iter_mut().chain(&mut proxy.https).for_each(hidden);
    }
    if let Some(hash) = &mut node.console_password_hash {
        *hash = "hidden".to_owned();
    }
    config
}

/// The findings in the console's format: errors first, each with its action and code. ASCII if the values are.
pub fn describe(findings: &Findings) -> String {
    let of = |severity| findings.iter().filter(move |finding| finding.severity == severity);
    let (errors, warnings) = (of(Severity::Error).count(), of(Severity::Warning).count());
    let mut text = String::new();
    match errors {
        0 => text.push_str("The OVF environment is in order.\n"),
        1 => text.push_str("One thing must be corrected; nothing was changed:\n"),
        many => {
            let _ = writeln!(text, "{many} things must be corrected; nothing was changed:");
        }
    }
    of(Severity::Error).for_each(|finding| describe_one(&mut text, finding));
    if warnings > 0 {
        text.push_str("Worth knowing:\n");
        of(Severity::Warning).for_each(|finding| describe_one(&mut text, finding));
    }
    text
}

fn describe_one(text: &mut String, finding: &Finding) {
    let Finding { code, subject, seen, action, .. } = finding;
    let _ = writeln!(text, "  {subject}: {seen}.\n      {action}. [{code}]");
}

#[cfg(test)]
mod tests {
    use std::io::empty;

    use flate2::read::GzDecoder;

    use super::*;

    const GOOD: &str = include_str!("../environment/fixtures/three-nodes.xml");

    fn run(environment: &[u8], output: Output) -> (bool, String) {
        let directory = tempfile::tempdir().unwrap();
        let (file, image) = (directory.path().join("environment"), directory.path().join("image.json"));
        fs::write(&file, environment).unwrap();
        fs::write(&image, include_str!("fixtures/image.json")).unwrap();
        let mut text = Vec::new();
        let valid = validate_command(&file, &image, output, &mut empty(), &mut text, SystemTime::UNIX_EPOCH).unwrap();
        let mut piped = Vec::new();
        validate_command(Path::new("-"), &image, output, &mut &environment[..], &mut piped, SystemTime::UNIX_EPOCH)
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, String::from_utf8(piped).unwrap());
        (valid, text)
    }

    #[test]
    fn valid_environment_is_in_order() {
        assert_eq!(run(GOOD.as_bytes(), Output::Text), (true, "The OVF environment is in order.\n".to_owned()));
    }

    #[test]
    fn iso_image_is_accepted() {
        let mut image = Vec::new();
        let packed: &[u8] = include_bytes!("../environment/fixtures/iso/joliet.iso.gz");
        GzDecoder::new(packed).read_to_end(&mut image).unwrap();
        assert!(run(&image, Output::Text).0);
    }

    #[test]
    fn findings_are_written_in_both_formats() {
        let bad = GOOD.replace("192.168.10.1\"", "192.168.11.1\"").replace("vxlan-port", "vxlan_port");
        let (valid, text) = run(bad.as_bytes(), Output::Text);
        assert!(!valid);
        insta::assert_snapshot!(text);
        let (valid, text) = run(bad.as_bytes(), Output::Json);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(!valid && json["valid"] == false && json["config"].is_null());
        assert_eq!(json["findings"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn output_contains_no_secret() {
        let hash = "$5$saltstring$uzdVN3XcAOYKRlFzn8F5/iMpo99aMD8sXQTYY9P10Z8";
        let good =
            GOOD.replace("console-password-hash\" oe:value=\"", &format!("console-password-hash\" oe:value=\"{hash}"));
        let mirror = "<Property oe:key=\"registry-mirror\"";
        let target = "<Property oe:key=\"snapshot-target\" oe:value=\"https://u:targetpass@backup.example.com/one/\"/>";
        let good = good.replace(mirror, &format!("{target}{mirror}"));
        let (valid, text) = run(good.as_bytes(), Output::Json);
        assert!(valid && text.contains("http://hidden@proxy.example.com:3128"));
        assert!(text.contains("https://hidden@backup.example.com/one/"), "{text}");
        for secret in ["x7$Qm", "proxypass", "saltstring", "targetpass"] {
            assert!(!text.contains(secret), "{text}");
        }
    }

    #[test]
    fn unreadable_file_is_named() {
        let error = validate_command(
            Path::new("/no/such/file"),
            Path::new("/no/such/image.json"),
            Output::Text,
            &mut empty(),
            &mut Vec::new(),
            SystemTime::UNIX_EPOCH,
        )
        .unwrap_err();
        assert!(format!("{error:#}").starts_with("reading the OVF environment /no/such/file: No such file"));
    }
}

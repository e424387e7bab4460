//! Measures the time that the appliance adds to a boot. For the appliance, it is the time from power-on to the agent's verdict and
//! to the console page. For a plain Debian with the same kernel and virtual hardware, it is the time to the login prompt. One VM
//! runs at a time, and the two alternate.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use image::debian::sources::Settings;
use lab::{Hardware, Source};
use scenarios::scenario::{self, Scenario, Setting};

use super::{median, plain};

/// Boots of each.
const TURNS: usize = 3;
const LIMIT: Duration = Duration::from_secs(600);
const SPEC: &str = "image/specs/control-plane.toml";

/// Measures and prints.
pub fn bench() -> Result<()> {
    let (spec, _) = image::spec::read(Path::new(SPEC))?;
    let plain = plain::make(&spec, &scenario::tools()?, &Settings::of_environment())?;
    println!("boot: plain Debian {} with {}", spec.packages.suite, plain.kernel);
    let (mut prompts, mut verdicts, mut pages) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        prompts.push(boot("plain", Some(plain.disk.clone()), &[&|text| text.contains("login:")])?[0]);
        let times = boot("boot", None, &[&has_verdict, &has_page])?;
        verdicts.push(times[0]);
        pages.push(times[1]);
    }
    let prompt = median(prompts);
    for (what, times) in [("the agent's verdict", verdicts), ("the console page", pages)] {
        let time = median(times);
        println!("boot: {time:.1} s from power-on to {what}, {:.2} of plain Debian's {prompt:.1} s", time / prompt);
    }
    Ok(())
}

/// The agent has begun the plan's first step, or says what must be corrected.
fn has_verdict(text: &str) -> bool {
    text.lines().any(|line| {
        line.split_once("kaas: ").is_some_and(|(_, said)| said.contains("(1/") || said.starts_with("stopped:"))
    })
}

/// systemd has started the console page on the first virtual terminal.
fn has_page(text: &str) -> bool {
    text.lines().any(|line| line.contains("Started") && line.contains("kaas-console@tty1"))
}

/// Powers a VM on and notes when its console shows each thing, in seconds.
fn boot(name: &'static str, disk: Option<PathBuf>, marks: &[&dyn Fn(&str) -> bool]) -> Result<Vec<f64>> {
    let setting = Setting { hardware: Some(Hardware::Quick), ..Setting::one(name) };
    let scenario = match disk {
        None => Scenario::prepare(&setting),
        Some(disk) => match scenario::image_under_test()? {
            Source::Ova { unpacked } => Scenario::prepare_from(&setting, Source::Disk { unpacked, disk }),
            _ => bail!("virtual machines need an OVA, not a root tree"),
        },
    };
    let begun = Instant::now();
    scenario.power_on(&["cp1"]);
    let mut times = vec![None; marks.len()];
    scenario.wait("the console to show how far the boot is", LIMIT, || {
        let text = scenario.lab().console_text("cp1").unwrap_or_default();
        for (time, mark) in times.iter_mut().zip(marks) {
            if time.is_none() && mark(&text) {
                *time = Some(begun.elapsed().as_secs_f64());
            }
        }
        Ok(times.iter().all(Option::is_some))
    });
    scenario.cut("cp1");
    Ok(times.into_iter().flatten().collect())
}

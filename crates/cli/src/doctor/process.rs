//! Whether one process that runs could be attached to.

use farmem::Failure;
use procfs::process::Process;

use super::Check;
use crate::subject;

/// All that is known of it without touching it.
pub(super) fn checks(number: u32) -> Vec<Check> {
    let process = match subject::checked(number) {
        Ok(process) => process,
        Err(Failure::Unusable(sentence)) => return vec![refused(sentence)],
        Err(_) => return vec![refused(format!("process {number} can't be looked at"))],
    };
    vec![attachable(number, &process), filter(&process), page_table(number)]
}

const NAME: &str = "process";
const MEANING: &str = "whether `farmem attach` can manage it";

fn refused(sentence: String) -> Check {
    Check { verdict: super::Verdict::Gap, ..Check::ok(NAME, sentence, MEANING) }.essential()
}

fn attachable(number: u32, process: &Process) -> Check {
    let name = process.stat().map_or_else(|_| String::new(), |stat| stat.comm);
    let name: String = name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    let status = process.status().ok();
    let mebibytes = status.as_ref().and_then(|status| status.rssanon).unwrap_or(0) >> 10;
    let threads = status.map_or(0, |status| status.threads);
    Check::ok(
        NAME,
        format!("{number} ({name}), {mebibytes} MiB of private memory, {threads} threads"),
        MEANING,
    )
    .essential()
}

/// Runtimes clear memory by what it says, and far pages count there as not written.
fn page_table(number: u32) -> Check {
    const NAME: &str = "its page table";
    const MEANING: &str = "a process that has it open runs unmanaged";
    if farmem_attach::has_page_table_open(number as i32) {
        let sentence = "it is open (/proc/self/pagemap)".to_owned();
        Check { verdict: super::Verdict::Gap, ..Check::ok(NAME, sentence, MEANING) }
    } else {
        Check::ok(NAME, "not open", MEANING)
    }
}

/// A filter may forbid the one call without which a puppet can't wait.
fn filter(process: &Process) -> Check {
    const NAME: &str = "its filter of calls";
    const MEANING: &str = "one that forbids futex, ioctl or madvise leaves the process unmanaged";
    match process.status().ok().and_then(|status| status.seccomp) {
        Some(0) => Check::ok(NAME, "none", MEANING),
        Some(_) => Check::unknown(NAME, "there is one, and nobody tells what it forbids", MEANING),
        None => Check::unknown(NAME, "the kernel doesn't say", MEANING),
    }
}

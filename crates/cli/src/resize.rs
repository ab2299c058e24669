//! `farmem shrink` and `farmem grow`: an application made small while nobody uses it, and given back what it
//! had.

use std::process::ExitCode;

use anyhow::anyhow;
use farmem::Failure;
use farmem_client::{Resized, SetError, Size};
use farmem_machine::Memory;
use farmem_page::mebibytes;
use serde::Serialize;

use crate::arguments::{GrowArguments, ResizeWatching, ShrinkArguments};
use crate::attach::Display;
use crate::print::print_json;

/// What came of it, for programs.
#[derive(Serialize)]
struct Outcome<'a> {
    name: &'a str,
    process: u32,
    is_done: bool,
    seconds: f64,
    /// By how much less is local than was before, or more.
    left_bytes: u64,
    returned_bytes: u64,
    /// Of what left, what the machine has free now: all but what pool and pagers take more.
    freed_bytes: u64,
    resident_bytes: u64,
    budget_bytes: u64,
    /// What it is to have; a host may have lent a part of that.
    wanted_bytes: u64,
    shrunk_from_bytes: u64,
    far_bytes: u64,
    pool_bytes: u64,
    node_bytes: u64,
    disk_bytes: u64,
    reason: Option<&'a str>,
}

/// Returns when it is small, or nothing more leaves.
pub(crate) fn shrink(arguments: &ShrinkArguments) -> Result<ExitCode, Failure> {
    let mut display = Display::new(arguments.watching.shown.progress);
    let timeout = arguments.watching.timeout;
    let outcome =
        farmem_client::shrink(&arguments.name, arguments.to, timeout, |now| display.show(|| line(now)));
    display.clear();
    let resized = outcome.map_err(unusable)?;
    // Without a size, small is what can be had.
    let is_done = resized.is_done || arguments.to.is_none() && resized.now.reason.is_some();
    print(&resized, is_done, &arguments.watching, || shrunk(&resized))?;
    if is_done {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::Failed(anyhow!(not_small(&resized))))
}

/// Returns when its budget is raised, or all that there is room for has come back.
pub(crate) fn grow(arguments: &GrowArguments) -> Result<ExitCode, Failure> {
    let GrowArguments { name, to, fetch, watching } = arguments;
    let usable = Memory::current().map_err(|error| Failure::Unusable(error.to_string()))?.usable();
    if let Some(to) = to.filter(|&to| to > usable) {
        return Err(Failure::Unusable(format!(
            "{} are more than the {} that this user may use; give --to less",
            mib(to.get()),
            mib(usable.get())
        )));
    }
    let mut display = Display::new(watching.shown.progress);
    let outcome = farmem_client::grow(name, *to, *fetch, watching.timeout, |now| display.show(|| line(now)));
    display.clear();
    let resized = outcome.map_err(unusable)?;
    print(&resized, resized.is_done, watching, || grown(&resized))?;
    if resized.is_done {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::Failed(anyhow!(
        "more of {} is coming back after {:.0} s; {}",
        resized.now.name,
        resized.took.as_secs_f64(),
        place(&resized.now)
    )))
}

fn unusable(error: SetError) -> Failure {
    Failure::Unusable(error.to_string())
}

/// Prints what came of it: as a sentence if it is done, since else the reason why not is one.
fn print(
    resized: &Resized,
    is_done: bool,
    watching: &ResizeWatching,
    sentence: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if watching.shown.json {
        print_json(&of(resized, is_done))?;
    } else if is_done {
        println!("{}", sentence());
    }
    Ok(())
}

fn of(resized: &Resized, is_done: bool) -> Outcome<'_> {
    let Resized { before, now, took, .. } = resized;
    Outcome {
        name: &now.name,
        process: now.process,
        is_done,
        seconds: took.as_secs_f64(),
        left_bytes: left(resized),
        returned_bytes: before.far_bytes.saturating_sub(now.far_bytes),
        freed_bytes: freed(resized),
        resident_bytes: now.resident_bytes,
        budget_bytes: now.budget_bytes,
        wanted_bytes: now.wanted_bytes,
        shrunk_from_bytes: now.shrunk_from_bytes,
        far_bytes: now.far_bytes,
        pool_bytes: now.pool_bytes,
        node_bytes: now.node_bytes,
        disk_bytes: now.disk_bytes,
        reason: now.reason.as_deref(),
    }
}

fn left(resized: &Resized) -> u64 {
    resized.before.resident_bytes.saturating_sub(resized.now.resident_bytes)
}

/// Of this machine's memory; the pool's and the pagers' are of it as well.
fn freed(resized: &Resized) -> u64 {
    let taken = |size: &Size| size.resident_bytes + size.pool_bytes + size.own_bytes;
    taken(&resized.before).saturating_sub(taken(&resized.now))
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", mebibytes(bytes))
}

/// How it goes.
fn line(now: &Size) -> String {
    format!("{}: local {}, far {}", now.name, mib(now.resident_bytes), mib(now.far_bytes))
}

/// Where it all is.
fn place(now: &Size) -> String {
    let mut parts = vec![format!("pool {}", mib(now.pool_bytes))];
    let below = [("nodes", now.node_bytes), ("disk", now.disk_bytes)];
    parts.extend(
        below
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(where_, bytes)| format!("{where_} {}", mib(*bytes))),
    );
    format!("local {}, far {} ({})", mib(now.resident_bytes), mib(now.far_bytes), parts.join(", "))
}

fn shrunk(resized: &Resized) -> String {
    let Resized { now, took, .. } = resized;
    let rest =
        now.reason.as_ref().map_or_else(String::new, |reason| format!("; more doesn't leave: {reason}"));
    format!(
        "{} (process {}): {} left in {:.1} s, and {} came free; {}{rest}",
        now.name,
        now.process,
        mib(left(resized)),
        took.as_secs_f64(),
        mib(freed(resized)),
        place(now)
    )
}

fn not_small(resized: &Resized) -> String {
    let Resized { now, took, .. } = resized;
    let reason = now.reason.clone().unwrap_or_else(|| "it uses more, or more is still leaving".to_owned());
    format!(
        "{} is not within {} after {:.0} s: {reason}; {}, budget {}",
        now.name,
        mib(now.wanted_bytes),
        took.as_secs_f64(),
        place(now),
        mib(now.budget_bytes)
    )
}

fn grown(resized: &Resized) -> String {
    let Resized { before, now, took, .. } = resized;
    let rest = match now.far_bytes {
        0 => "",
        _ => "; what is far comes back when it is touched",
    };
    format!(
        "{} (process {}): budget raised from {} to {}, {} came back in {:.1} s; {}{rest}",
        now.name,
        now.process,
        mib(before.wanted_bytes),
        mib(now.wanted_bytes),
        mib(before.far_bytes.saturating_sub(now.far_bytes)),
        took.as_secs_f64(),
        place(now)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn size(resident: u64, far: u64, pool: u64) -> Size {
        Size {
            name: "notebook".to_owned(),
            process: 7,
            budget_bytes: resident << 20,
            wanted_bytes: resident << 20,
            resident_bytes: resident << 20,
            far_bytes: far << 20,
            pool_bytes: pool << 20,
            ..Size::default()
        }
    }

    fn resized(before: Size, now: Size) -> Resized {
        Resized { before, now, took: Duration::from_millis(1250), is_done: true }
    }

    #[test]
    fn what_came_free_is_without_what_the_pool_takes_for_it() {
        let resized = resized(size(300, 0, 0), size(4, 296, 96));
        assert_eq!(
            shrunk(&resized),
            "notebook (process 7): 296.0 MiB left in 1.2 s, and 200.0 MiB came free; local 4.0 MiB, far 296.0 MiB (pool 96.0 MiB)"
        );
    }

    #[test]
    fn what_stays_is_told_with_the_reason() {
        let now = Size {
            reason: Some("its pool is full".to_owned()),
            wanted_bytes: 4 << 20,
            disk_bytes: 1 << 20,
            ..size(90, 10, 5)
        };
        let resized = resized(size(100, 0, 0), now);
        assert!(
            shrunk(&resized).ends_with("(pool 5.0 MiB, disk 1.0 MiB); more doesn't leave: its pool is full")
        );
        assert_eq!(
            not_small(&resized),
            "notebook is not within 4.0 MiB after 1 s: its pool is full; local 90.0 MiB, far 10.0 MiB (pool 5.0 MiB, disk 1.0 MiB), budget \
             90.0 MiB"
        );
    }

    #[test]
    fn who_grows_is_told_what_came_back_and_what_is_still_far() {
        let resized = resized(size(4, 296, 96), size(104, 196, 96));
        assert!(grown(&resized).contains(
            "budget raised from 4.0 MiB to 104.0 MiB, 100.0 MiB came back in 1.2 s; local 104.0 MiB"
        ));
        assert!(grown(&resized).ends_with("comes back when it is touched"));
    }
}

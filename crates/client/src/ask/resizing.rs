//! Making an application small, and large again, from outside: what is asked, and how it is waited for.

use std::time::{Duration, Instant};

use farmem_page::{ByteCount, PageCount};
use farmem_wire::{Request, Resizing};

use crate::ask::directory::{SetError, exchange, named, understood};
use crate::ask::size::Size;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// For so long after the budget was raised nothing comes back by itself; all has that will, when for so long
/// nothing more does.
const CALM: Duration = Duration::from_secs(1);

/// What came of it.
#[derive(Clone, Debug)]
pub struct Resized {
    /// How it was before.
    pub before: Size,
    /// How it is now.
    pub now: Size,
    /// How long that took.
    pub took: Duration,
    /// Whether it is done; else the time is over, or no more can be done.
    pub is_done: bool,
}

/// Makes the application of that name, or of that program's process number, so small, or as small as is
/// sensible. Returns when it is, when nothing more leaves, or when the time is over; `hear` is told now and
/// then how it stands.
///
/// # Errors
/// There is no such application or more than one, or its supervisor refuses.
pub fn shrink(
    name: &str,
    to: Option<ByteCount>,
    timeout: Duration,
    hear: impl FnMut(&Size),
) -> Result<Resized, SetError> {
    resize(name, Resizing::Shrink, to, timeout, hear, |now| now.is_small)
}

/// Lets it be so large, or as large as it was before it was shrunk. With `fetch` it returns when what there
/// is room for has come back.
///
/// # Errors
/// As for [`shrink`].
pub fn grow(
    name: &str,
    to: Option<ByteCount>,
    fetch: bool,
    timeout: Duration,
    hear: impl FnMut(&Size),
) -> Result<Resized, SetError> {
    let mut calm = (u64::MAX, Instant::now());
    resize(name, Resizing::Grow, to, timeout, hear, move |now| {
        if now.far_bytes != calm.0 {
            calm = (now.far_bytes, Instant::now());
        }
        // It is agreed by now. A host may have lent what it doesn't use, and gives that back when it is
        // needed.
        !fetch || now.far_bytes == 0 || calm.1.elapsed() > CALM
    })
}

fn resize(
    name: &str,
    step: Resizing,
    to: Option<ByteCount>,
    timeout: Duration,
    mut hear: impl FnMut(&Size),
    mut is_done: impl FnMut(&Size) -> bool,
) -> Result<Resized, SetError> {
    let (socket, _) = named(name)?;
    let ask = |step, budget: Option<PageCount>| -> Result<Size, SetError> {
        let budget_pages = budget.map_or(0, |budget| budget.get().max(1));
        let answer = exchange(&socket, Request::Resize { step, budget_pages });
        understood(name, &answer.ok_or_else(|| SetError::Gone(name.to_owned()))?)
    };
    let before = ask(Resizing::Look, None)?;
    let began = Instant::now();
    let mut now = ask(step, to.map(ByteCount::pages))?;
    loop {
        let (is_done, is_stuck) = (is_done(&now), now.reason.is_some() && step == Resizing::Shrink);
        if is_done || is_stuck || began.elapsed() >= timeout {
            return Ok(Resized { before, now, took: began.elapsed(), is_done });
        }
        hear(&now);
        std::thread::sleep(LOOK);
        now = ask(Resizing::Look, None)?;
    }
}

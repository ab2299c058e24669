//! Records a trace: from the ring that the application's processes write to a file.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use farmem_policy::PrefetchPolicy;
use farmem_telemetry::{Ledger, TraceReader};
use farmem_trace::{TraceHeader, TraceWriter};

use crate::say::say;
use crate::threads::worker::Worker;

/// Between two looks at the ring. It holds 131 072 records, and a fault with its eviction makes two: this
/// leaves room for six million faults a second.
const PAUSE: Duration = Duration::from_millis(10);

/// The recording.
pub(crate) struct Recorder {
    ledger: Ledger<'static>,
    state: Mutex<State>,
}

struct State {
    reader: TraceReader,
    /// `None` when the recording has ended, or could not go on.
    writer: Option<TraceWriter<BufWriter<File>>>,
}

impl Recorder {
    /// Begins to record to a file.
    ///
    /// # Errors
    /// It can't be written there.
    pub(crate) fn begin(path: &Path, ledger: Ledger<'static>, policy: PrefetchPolicy) -> Result<Self> {
        let begin = || {
            let file = BufWriter::new(File::create(path)?);
            TraceWriter::new(file, &TraceHeader { budget: ledger.budget(), policy })
        };
        let writer = begin().with_context(|| format!("cannot write the trace {}", path.display()))?;
        let state = State { reader: TraceReader::default(), writer: Some(writer) };
        Ok(Self { ledger, state: Mutex::new(state) })
    }

    /// Starts the thread that empties the ring.
    pub(crate) fn start(&'static self) -> Worker {
        Worker::start(move || {
            self.look(false);
            PAUSE
        })
    }

    /// Ends the recording: no process is left that could write.
    pub(crate) fn end(&self) {
        self.look(true);
    }

    fn look(&self, is_last: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { reader, writer: place } = &mut *state;
        let Some(mut writer) = place.take() else { return };
        let mut written = Ok(());
        let visit = |record| {
            if written.is_ok() {
                written = writer.record(&record);
            }
        };
        let ring = self.ledger.trace();
        let lost = if is_last { reader.read_rest(ring, visit) } else { reader.read(ring, visit) };
        if written.is_ok() && lost > 0 {
            written = writer.lost(lost);
        }
        match written.and_then(|()| if is_last { writer.finish().map(|_| None) } else { flushed(writer) }) {
            Ok(writer) => *place = writer,
            Err(error) => say(&format!("the trace ends here, since it can't be written any more: {error}")),
        }
    }
}

/// Nothing stays in a buffer that a copy of this process would write as well.
fn flushed<W: io::Write>(mut writer: TraceWriter<W>) -> io::Result<Option<TraceWriter<W>>> {
    writer.flush()?;
    Ok(Some(writer))
}

//! Runs programs natively and under the pager, and compares what they did.
//!
//! A *scenario* is a function that starts programs through a [`Launcher`], talks to them, and returns a
//! transcript. It is run twice: natively, which gives the expected transcript and the program's own peak of
//! anonymous memory, and under `farmem run` with a share of that peak as budget. [`same_at`] compares both
//! transcripts byte by byte, and checks the statistics that `farmem run --stats` left behind.
//!
//! Environment:
//! - `FARMEM_TEST_RUNNER`: `farmem` or `native`; the default is [`DEFAULT_RUNNER`].
//! - `FARMEM_BIN`: the `farmem` binary; by default the release build of this workspace. It is one for tests
//!   (`make build-for-tests`): the tests set `FARMEM_INJECT` where something is to fail ([`injection`]).
//! - `FARMEM_TEST_SCALE`: `small` (default) or `large`, the size of the data.
//! - `FARMEM_TEST_KEEP`: keeps the directories of the tests, for a look at what was left there.

mod application;
mod browser;
mod dependency;
mod etcd;
mod guest;
mod host;
mod initial_file_system;
mod injection;
mod launch;
mod looks;
mod memcache;
mod memory_file;
mod network;
mod node;
mod pattern;
mod redis;
mod refusal;
mod scale;
mod scratch;
mod statistics;
mod trial;
mod watch;

pub use application::{application, figure, set_limits};
pub use browser::Browser;
pub use dependency::dependency;
pub use etcd::Etcd;
pub use guest::{GuestMemory, start_guest};
pub use host::Host;
pub use injection::injection;
pub use launch::{
    DEFAULT_RUNNER, Finished, Launcher, Program, Runner, Running, farmem_binary, managed_runner, runner,
};
pub use memcache::MemcacheClient;
pub use memory_file::memory_file_bytes;
pub use network::Network;
pub use node::Node;
pub use pattern::{Digest, SplitMix, value_bytes};
pub use redis::{RedisClient, Reply};
pub use refusal::{assert_refusal, refusal};
pub use scale::{is_large, scaled};
pub use scratch::Scratch;
pub use statistics::{REQUIRED_KEYS, Statistics};
pub use trial::{
    Share, assert_in_one_of_three, assert_nothing_is_left, assert_within_budget, past_budget, same_at,
    second_launcher, wait_for,
};

//! A run on the ranks of a job: rank 0 has the folder and decides; the others resume a copy of it, and follow.

use std::{
    fs,
    ops::ControlFlow,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use precast::{
    Checkpoint, Child,
    error::{Error, ErrorKind, Result},
    io::models::Model,
};
use precast_base::files;
use precast_mpi::{Ranks, Wire};

use super::{
    EndReason, Run, RunFile,
    folder::{ABOUT, Folder, METRICS, POLICY, RUN, name_of_checkpoint},
    steps::Steps,
};
use crate::{
    data::Split,
    training::{DataParallel, Event, Fit, FitOptions, shards::filled},
};

/// Words of rank 0 before each call of all ranks.
const END: u8 = 0;
const ADVANCE: u8 = 1;
const CHECKPOINT: u8 = 2;
const GATHER: u8 = 3;

impl Run {
    /// Trains as [`train_with`](Run::train_with) does, with the shards of each step divided among the ranks of a job. Rank 0
    /// calls this; the others [follow](Follower) it. Files and decisions are those of rank 0, and have the same bits as
    /// in one process, except for times and for what describes one process: memory and headroom.
    ///
    /// # Errors
    /// As [`train_with`](Run::train_with), on all ranks; [`ErrorKind::Run`](precast::ErrorKind::Run) for fewer shards than
    /// ranks; [`ErrorKind::Ranks`](precast::ErrorKind::Ranks) for an error of another rank, or one that does not answer.
    pub fn train_on(
        &mut self,
        ranks: &Ranks,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<EndReason> {
        let shared = self.file.check_ranks(ranks.size()).and_then(|()| self.packed());
        let shared = ranks.agree(shared).map_err(Error::ranks)?;
        ranks.broadcast(shared).map_err(Error::ranks)?;
        ranks.agree(Ok::<(), Error>(())).map_err(Error::ranks)?;
        let mut leader = Leader { ranks, parallel: self.file.parallel(ranks)?, is_stopped: false };
        let ended = self.advance_to_end(observer, &mut leader);
        let words = match &ended {
            // All ranks have it, or cannot be reached.
            Err(error) if error.kind() == ErrorKind::Ranks => return ended,
            Err(error) => error.to_string(),
            Ok(_) => {
                leader.say(GATHER)?;
                self.fit.gather_state(&leader.parallel)?;
                String::new()
            }
        };
        ranks.broadcast([&[END], words.as_bytes()].concat()).map_err(Error::ranks)?;
        self.end(ended?)
    }
}

impl Run {
    /// Returns the files that define the run, with its history and a checkpoint of its state: names, lengths, and bytes.
    fn packed(&self) -> Result<Vec<u8>> {
        let folder = self.folder.path();
        let about = Folder::about(folder)?;
        let mut all = Vec::new();
        let mut pack = |name: &str, bytes: &[u8]| {
            for part in [name.as_bytes(), bytes] {
                all.extend((part.len() as u64).to_le_bytes());
                all.extend(part);
            }
        };
        for name in [RUN, POLICY, ABOUT, METRICS].into_iter().chain(about.checksums.keys().map(String::as_str)) {
            let file = folder.join(name);
            pack(name, &fs::read(&file).map_err(|error| Error::io(&file, &error))?);
        }
        // Not that of the folder, of which the newest may be damaged.
        let checkpoint = self.completed(self.fit.checkpoint(&self.net), None)?;
        pack(&name_of_checkpoint(self.fit.steps_done()), &checkpoint.to_bytes()?);
        Ok(all)
    }
}

/// The steps of rank 0, which the others follow.
struct Leader<'r> {
    ranks: &'r Ranks,
    parallel: DataParallel<'r>,
    is_stopped: bool,
}

impl Leader<'_> {
    fn say(&self, word: u8) -> Result<()> {
        self.ranks.broadcast(vec![word]).map(drop).map_err(Error::ranks)
    }
}

impl Steps for Leader<'_> {
    fn ranks(&self) -> usize {
        self.ranks.size()
    }

    fn advance<'f>(&mut self, fit: &'f mut Fit, net: &mut Child, data: &Split) -> Result<Option<Event<'f>>> {
        self.say(ADVANCE)?;
        let event = fit.advance_on(&mut self.parallel, net, data)?;
        self.is_stopped = self.ranks.vote(&[0]).map_err(Error::ranks)?.any(0) != 0;
        Ok(event)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn checkpoint(&mut self, fit: &Fit, net: &Child) -> Result<Checkpoint> {
        self.say(CHECKPOINT)?;
        let checkpoint = fit.checkpoint_on(&self.parallel, net)?;
        checkpoint.ok_or_else(|| Error::ranks("a checkpoint is written by rank 0, and this is another"))
    }
}

impl RunFile {
    /// Returns a note if some shards of a step have no examples.
    pub(super) fn idle_shards(&self) -> Option<String> {
        let FitOptions { batch, shards, .. } = self.options;
        let filled = filled(batch, shards);
        (filled < shards).then(|| {
            format!(
                "`batch` is {batch}, and `shards` is {shards}: {} of the shards have no examples, since each of the others takes \
                 two at least",
                shards - filled
            )
        })
    }

    /// Returns a note if options of ranks have no effect, since steps cannot be divided.
    pub(super) fn options_of_ranks(&self) -> Option<String> {
        let used = [("wire", self.wire != Wire::default()), ("shard_optimizer", self.shard_optimizer)];
        let (key, _) = used.into_iter().find(|(_, is_used)| *is_used)?;
        (self.options.shards == 1)
            .then(|| format!("`{key}` has no effect: `shards` is 1, so one process takes each step"))
    }

    /// Divides steps among ranks.
    fn parallel<'r>(&self, ranks: &'r Ranks) -> Result<DataParallel<'r>> {
        let parallel = DataParallel::new(ranks, self.options.shards, self.wire)?;
        Ok(if self.shard_optimizer { parallel.sharding_state() } else { parallel })
    }

    /// Checks that steps can be divided among so many ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Run`](precast::ErrorKind::Run) for fewer shards.
    pub fn check_ranks(&self, ranks: usize) -> Result<()> {
        let shards = self.options.shards;
        if shards >= ranks {
            return Ok(());
        }
        let words = format!(
            "`shards` is {shards}, and the launcher has started {ranks} processes; allowed: one shard for each of them at \
             least, or a new run with `shards: {ranks}`"
        );
        Err(Error::run(words))
    }
}

/// A run on a rank other than 0, which takes part in the steps of rank 0.
#[derive(Debug)]
pub struct Follower {
    run: Run,
}

impl Follower {
    /// Receives the run of rank 0. `model` builds the model of its run file, as for [`Run::resume`].
    ///
    /// # Errors
    /// [`ErrorKind::Ranks`](precast::ErrorKind::Ranks) when a rank cannot begin, with its words: the data differ from those
    /// of rank 0, for example.
    pub fn receive(ranks: &Ranks, model: impl FnOnce(&RunFile) -> Result<Model>) -> Result<Self> {
        ranks.agree(Ok::<(), Error>(())).map_err(Error::ranks)?;
        let shared = ranks.broadcast(Vec::new()).map_err(Error::ranks)?;
        let begun = Copied::unpack(&shared, ranks.rank()).and_then(|folder| {
            let model = model(&RunFile::of_folder(&folder.0)?)?;
            // The steps need no file of it, so that the copy may end here.
            let run = Run::resume(&folder.0, model).map_err(|error| {
                // The reader has the files of rank 0, and not the copies.
                let folder = folder.0.display();
                let words = error.to_string().replace(&format!("{folder}: "), "").replace(&format!("{folder}/"), "");
                let words = words.lines().next().unwrap_or_default();
                let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                let host = if host.is_empty() { String::new() } else { format!(" on {}", host.trim()) };
                Error::run(format!("this rank{host} has not the data of rank 0: {words}"))
            })?;
            Ok(Follower { run })
        });
        ranks.agree(begun).map_err(Error::ranks)
    }

    /// Takes part in the steps of rank 0 until it ends the run. If `is_stopped`, after a step, the run of all ranks ends as
    /// an interrupted one.
    ///
    /// # Errors
    /// As [`Run::train_on`].
    pub fn follow(mut self, ranks: &Ranks, is_stopped: impl Fn() -> bool) -> Result<()> {
        let mut parallel = self.run.file.parallel(ranks)?;
        loop {
            let words = ranks.broadcast(Vec::new()).map_err(Error::ranks)?;
            match words.split_first() {
                Some((&ADVANCE, _)) => {
                    self.run.fit.advance_on(&mut parallel, &mut self.run.net, &self.run.data)?;
                    ranks.vote(&[is_stopped().into()]).map_err(Error::ranks)?;
                }
                Some((&CHECKPOINT, _)) => {
                    self.run.fit.checkpoint_on(&parallel, &self.run.net)?;
                }
                Some((&GATHER, _)) => self.run.fit.gather_state(&parallel)?,
                Some((_, words)) if !words.is_empty() => {
                    return Err(Error::ranks(format!("rank 0: {}", String::from_utf8_lossy(words))));
                }
                _ => return Ok(()),
            }
        }
    }
}

/// A copy of a run's folder, which is removed with this value.
#[derive(Debug)]
struct Copied(PathBuf);

impl Copied {
    fn unpack(mut packed: &[u8], rank: usize) -> Result<Self> {
        static COPIES: AtomicU64 = AtomicU64::new(0);
        let (process, copy) = (std::process::id(), COPIES.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("precast-rank-{rank}-{process}-{copy}"));
        fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, &error))?;
        let folder = Copied(folder);
        while !packed.is_empty() {
            let mut next = || {
                let (length, rest) = packed.split_first_chunk::<8>()?;
                let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
                packed = rest;
                Some(part)
            };
            let (Some(name), Some(bytes)) = (next(), next()) else {
                return Err(Error::run("the files of rank 0 are cut"));
            };
            files::replace(folder.0.join(&*String::from_utf8_lossy(name)), bytes)?;
        }
        Ok(folder)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

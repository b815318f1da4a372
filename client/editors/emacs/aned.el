;;; aned.el --- Chat and completion with aned, over its Unix socket  -*- lexical-binding: t; -*-

;; Version: 0.1
;; Package-Requires: ((emacs "27.1"))
;; Keywords: convenience, tools

;;; Commentary:

;; `aned-chat' opens a buffer in which you talk with a model: write below
;; "## You", send with C-c C-c, stop with C-c C-k.  What is sent is what the
;; buffer says, so earlier turns can be edited.
;;
;; `aned-complete' shows how the text before point might go on; TAB takes it
;; over, any other key goes on without it.
;;
;; Nothing but Emacs is needed: no curl, no port, no key.

;;; Code:

(require 'cl-lib)
(require 'json)
(require 'subr-x)

(defgroup aned nil
  "Chat and completion with aned."
  :group 'tools)

(defcustom aned-socket nil
  "Where aned listens; nil: $ANED_SOCKET, else where `aned serve' does by default."
  :type '(choice (const :tag "Found as anectl finds it" nil) file))

(defcustom aned-model ""
  "The model to ask; empty: the daemon's default.  `aned-choose-model' sets it."
  :type 'string)

(defcustom aned-system ""
  "Instructions before each chat; empty: none."
  :type 'string)

(defcustom aned-chat-max-tokens nil
  "Tokens of an answer at most; nil: until the model ends it."
  :type '(choice (const nil) natnum))

(defcustom aned-completion-max-tokens 64
  "Tokens of a completion at most."
  :type 'natnum)

(defcustom aned-prefix-chars 8192
  "Characters before point that a completion goes on from."
  :type 'natnum)

(defcustom aned-suffix-chars 2048
  "Characters behind point that a model that fills in may see."
  :type 'natnum)

;;; Where aned is

(defun aned--set (text)
  "TEXT, or nil when it is empty."
  (and text (not (string-empty-p text)) text))

(defun aned-socket-path ()
  "Where aned listens, found as anectl finds it."
  (let ((run (aned--set (getenv "XDG_RUNTIME_DIR"))))
    (expand-file-name
     (or (aned--set aned-socket)
         (aned--set (getenv "ANED_SOCKET"))
         (and run (concat run "/aned/aned.sock"))
         (concat (or (aned--set (getenv "ANED_HOME"))
                     (if (eq system-type 'darwin)
                         "~/Library/Application Support/dev.aned.daemon"
                       "~/.local/share/aned"))
                 "/run/aned.sock")))))

;;; What went wrong, and what to do about it

(defconst aned--start
  "start it with `aned serve', or for good with `anectl service install'")

(defconst aned--advice
  '(("model_not_found" . "`anectl models' lists the models; choose one with M-x aned-choose-model, or make one with `anectl convert FILE.gguf'")
    ("context_length_exceeded" . "send less, or convert with a larger --context")
    ("busy" . "others are being served: try again in a moment")
    ("starting" . "aned has just started: try again in a moment")
    ("template.unsupported" . "this model has no chat: use M-x aned-complete, or choose another with M-x aned-choose-model")
    ("template.input" . "the model's template wants other turns: see the chat's headings, or begin a new chat")
    ("model.failed" . "`anectl doctor' says what is wrong")
    ("model.rejected" . "`anectl report MODEL' shows the gate that it did not pass; choose another with M-x aned-choose-model")
    ("engine.lost" . "try again; if it happens again, `anectl doctor' says what is wrong")
    ("no_memory" . "unload a model (`anectl ps', `anectl unload MODEL'), then try again"))
  "What to do, by an error's code.")

(defun aned--error-of (body)
  "The error object in BODY as an alist (message, code, param), or nil."
  (let* ((x (ignore-errors (aned--read body)))
         (e (and (hash-table-p x) (gethash "error" x))))
    (cond ((stringp e) (list (cons 'message e)))
          ((hash-table-p e)
           (mapcar (lambda (k) (let ((v (gethash (symbol-name k) e)))
                                 (cons k (and (stringp v) v))))
                   '(message code param))))))

(defun aned--explain (status body)
  "One line for a person about an answer with STATUS and BODY.
STATUS is a number, or a symbol: `connect', `broken'; then BODY is a text."
  (pcase status
    ('connect (format "aned does not run (%s: %s): %s; if it runs elsewhere, set `aned-socket'"
                      (aned-socket-path) body aned--start))
    ('broken (format "the connection broke (%s): try again; `anectl status' says whether aned is well" body))
    (_ (let* ((e (aned--error-of body))
              (text (alist-get 'message e))
              (advice (cdr (assoc (if (equal (alist-get 'param e) "model") "model_not_found"
                                    (or (alist-get 'code e) (and (eql status 503) "busy")))
                                  aned--advice))))
         (cond ((not text) (format "aned answered %s: `anectl doctor' says what is wrong" status))
               (advice (concat text ": " advice))
               (t text))))))

(defun aned--tell (status body)
  "Say what went wrong: STATUS and BODY as in `aned--explain'."
  (message "aned: %s" (aned--explain status body)))

;;; One HTTP request

(defconst aned--head-max (* 64 1024) "Bytes of an answer's head at most.")
(defconst aned--body-max (* 8 1024 1024) "Bytes of an answer that is no stream.")

(cl-defstruct (aned--call (:constructor aned--call-make))
  process
  (text "")      ; bytes not looked at yet
  status headers ; of the answer
  (left 0)       ; bytes of this chunk or of the body that are to come
  over           ; the body is whole
  (kept "")      ; the body, unless it goes to on-data
  on-data        ; called with each event's data, decoded; nil: none
  (line "")      ; of the stream of events, not whole yet
  on-done)       ; called once with status (see `aned--explain') and body; nil: it was

(defun aned--read (text)
  "TEXT, JSON, as hash tables and lists; null and false are nil."
  (json-parse-string text :array-type 'list :null-object nil :false-object nil))

(defun aned--write (x)
  "X as UTF-8 bytes of JSON."
  (let ((text (json-serialize x)))
    (if (multibyte-string-p text) (encode-coding-string text 'utf-8) text)))

(defun aned--done (call status body)
  "End CALL and say so, once."
  (let ((then (aned--call-on-done call)))
    (setf (aned--call-on-done call) nil)
    (when (process-live-p (aned--call-process call))
      (delete-process (aned--call-process call)))
    (when then
      (funcall then status body))))

(defun aned-stop-call (call)
  "End CALL without another word; what the model computes for it ends, too."
  (setf (aned--call-on-done call) nil)
  (aned--done call nil nil))

(defun aned--take-head (call)
  "Read the head of CALL's answer, once it is there."
  (let* ((text (aned--call-text call))
         (end (string-search "\r\n\r\n" text)))
    (cond
     (end
      (if (not (string-match "\\`HTTP/1\\.[01] \\([0-9]\\{3\\}\\)" text))
          (aned--done call 'broken "no HTTP answer")
        (setf (aned--call-status call) (string-to-number (match-string 1 text))
              (aned--call-headers call) (downcase (substring text 0 end))
              (aned--call-text call) (substring text (+ end 4)))
        (let ((length (aned--header call "content-length")))
          (when length
            (setf (aned--call-left call) (string-to-number length)
                  (aned--call-over call) (equal length "0"))))))
     ((> (length text) aned--head-max)
      (aned--done call 'broken "a head that is too large")))))

(defun aned--header (call name)
  "The value of header NAME of CALL's answer, in lower case; nil: none."
  (and (string-match (concat "^" (regexp-quote name) ": *\\([^\r\n]*\\)") (aned--call-headers call))
       (match-string 1 (aned--call-headers call))))

(defun aned--take-chunks (call)
  "The bytes of the chunks that have arrived; sets over behind the last."
  (let ((out nil) (go t))
    (while go
      (let ((text (aned--call-text call)))
        (cond
         ((and (= (aned--call-left call) 0)
               (string-match "\\`\\([0-9a-fA-F]\\{1,8\\}\\)[^\r\n]*\r\n" text))
          (let ((n (string-to-number (match-string 1 text) 16)))
            (setf (aned--call-text call) (substring text (match-end 0))
                  (aned--call-left call) (if (= n 0) 0 (+ n 2)))
            (when (= n 0)
              (setf (aned--call-over call) t go nil))))
         ((= (aned--call-left call) 0)
          (when (or (string-search "\n" text) (> (length text) aned--head-max))
            (aned--done call 'broken "a bad chunk"))
          (setq go nil))
         ((string-empty-p text) (setq go nil))
         (t
          (let* ((left (aned--call-left call))
                 (n (min left (length text))))
            (push (substring text 0 (max 0 (min n (- left 2)))) out)
            (setf (aned--call-text call) (substring text n)
                  (aned--call-left call) (- left n)))))))
    (apply #'concat (nreverse out))))

(defun aned--take-body (call)
  "The body's bytes that have arrived."
  (if (string-match-p "chunked" (or (aned--header call "transfer-encoding") ""))
      (aned--take-chunks call)
    (let ((text (aned--call-text call)))
      (setf (aned--call-text call) "")
      (when (aned--header call "content-length")
        (cl-decf (aned--call-left call) (length text))
        (setf (aned--call-over call) (<= (aned--call-left call) 0)))
      text)))

(defun aned--events (call data)
  "Give each whole event in DATA, bytes of a stream of events, to CALL's on-data."
  (let ((lines (split-string (concat (aned--call-line call) data) "\n")))
    (setf (aned--call-line call) (car (last lines)))
    (dolist (line (butlast lines))
      (when (and (aned--call-on-done call)
                 (string-match "\\`data: ?\\([^\r]*\\)" line))
        (funcall (aned--call-on-data call)
                 (decode-coding-string (match-string 1 line) 'utf-8))))))

(defun aned--whole (call)
  "CALL's answer has ended."
  (aned--done call (aned--call-status call)
              (decode-coding-string (aned--call-kept call) 'utf-8)))

(defun aned--filter (call text)
  "Bytes TEXT of CALL's answer have arrived."
  (setf (aned--call-text call) (concat (aned--call-text call) text))
  (unless (aned--call-status call)
    (aned--take-head call))
  (when (and (aned--call-status call) (aned--call-on-done call))
    (let ((data (if (aned--call-over call) "" (aned--take-body call))))
      (cond
       ((and (aned--call-on-data call) (< (aned--call-status call) 300))
        (aned--events call data))
       ((> (+ (length (aned--call-kept call)) (length data)) aned--body-max)
        (aned--done call 'broken "an answer that is too large"))
       (t (setf (aned--call-kept call) (concat (aned--call-kept call) data)))))
    (when (aned--call-over call)
      (aned--whole call))))

(defun aned--sentinel (call event)
  "CALL's connection changed: EVENT says how."
  (unless (string-prefix-p "open" event)
    (if (and (aned--call-status call)
             (or (aned--call-over call)
                 (not (or (aned--header call "content-length")
                          (aned--header call "transfer-encoding")))))
        (aned--whole call)
      (aned--done call 'broken "the answer ended early"))))

(defun aned--request (method path body on-data on-done)
  "Ask METHOD PATH of aned, with BODY (an object for `json-serialize') or nil.
ON-DATA gets each event's data of a stream, nil: the answer is none.  ON-DONE
is called once, with status and body as in `aned--explain'.  Returns the call,
or nil when aned cannot be reached (ON-DONE was called)."
  (let ((call (aned--call-make :on-data on-data :on-done on-done))
        (bytes (if body (aned--write body) "")))
    (condition-case failed
        (progn
          (setf (aned--call-process call)
                (make-network-process
                 :name "aned" :family 'local :service (aned-socket-path)
                 :coding 'binary :noquery t
                 :filter (lambda (_ text) (aned--filter call text))
                 :sentinel (lambda (_ event) (aned--sentinel call event))))
          (process-send-string
           (aned--call-process call)
           (concat (format "%s %s HTTP/1.1\r\nHost: aned\r\nConnection: close\r\n" method path)
                   (format "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" (length bytes))
                   bytes))
          call)
      (file-error
       (funcall on-done 'connect (or (nth 1 (seq-filter #'stringp (cdr failed))) "no answer"))
       nil))))

(defun aned--stream (path body on-choice on-done)
  "Post BODY, an alist, to PATH as a stream in the form of OpenAI.
ON-CHOICE gets choices[0] of each event, a hash table; ON-DONE as in
`aned--request', also for an error inside of the stream."
  (let ((wrong nil))
    (aned--request
     "POST" path
     (append (and (aned--set aned-model) `((model . ,aned-model))) '((stream . t)) body)
     (lambda (text)
       (let ((x (ignore-errors (aned--read text)))) ; "[DONE]" is none
         (cond ((not (hash-table-p x)))
               ((gethash "error" x) (setq wrong text))
               ((gethash "choices" x) (funcall on-choice (car (gethash "choices" x)))))))
     (lambda (status text)
       (if wrong (funcall on-done 500 wrong) (funcall on-done status text))))))

;;; Models

(defun aned--models (then)
  "Call THEN with the names of the models."
  (aned--request
   "GET" "/v1/models" nil nil
   (lambda (status body)
     (if (not (eql status 200))
         (aned--tell status body)
       (funcall then (mapcar (lambda (m) (gethash "id" m)) (gethash "data" (aned--read body))))))))

;;;###autoload
(defun aned-choose-model ()
  "Choose the model that is asked from now on."
  (interactive)
  (aned--models
   (lambda (names)
     (if (null names)
         (message "aned: there is no model yet: make one with `anectl convert FILE.gguf'")
       (run-at-time 0 nil (lambda ()
                            (setq aned-model (completing-read "aned model: " names nil t))))))))

;;; Chat

(defconst aned--headings '(("## System" . "system") ("## You" . "user") ("## Model" . "assistant")))

(defvar-local aned--answer nil "The call whose answer is coming into this buffer.")

(defvar aned-chat-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'aned-send)
    (define-key map (kbd "C-c C-k") #'aned-stop)
    map))

(define-derived-mode aned-chat-mode text-mode "aned"
  "A chat with a model of aned."
  (setq-local font-lock-defaults '((("^## \\(System\\|You\\|Model\\)$" . font-lock-keyword-face)) t))
  (visual-line-mode 1))

;;;###autoload
(defun aned-chat (&optional begin end)
  "Open the chat; with an active region, from BEGIN to END, about its text."
  (interactive (and (use-region-p) (list (region-beginning) (region-end))))
  (let ((quoted (and begin (concat "```\n" (buffer-substring-no-properties begin end) "\n```\n\n")))
        (buffer (get-buffer-create "*aned*")))
    (pop-to-buffer buffer)
    (unless (derived-mode-p 'aned-chat-mode)
      (aned-chat-mode)
      (insert "## You\n\n"))
    (goto-char (point-max))
    (when quoted
      (insert quoted))))

(defun aned--messages ()
  "The conversation of this buffer; turns without text are left out."
  (let ((found nil) (role nil) (lines nil))
    (cl-flet ((close () (let ((text (string-trim (string-join (nreverse lines) "\n"))))
                          (when (and role (not (string-empty-p text)))
                            (push `((role . ,role) (content . ,text)) found))
                          (setq lines nil))))
      (dolist (line (split-string (buffer-substring-no-properties (point-min) (point-max)) "\n"))
        (let ((heading (cdr (assoc line aned--headings))))
          (if (not heading)
              (push line lines)
            (close)
            (setq role heading))))
      (close))
    (nreverse found)))

(defun aned--append (text)
  "TEXT at the end of this buffer; point follows where it is there already."
  (let ((follow (= (point) (point-max)))
        (windows (cl-remove-if-not (lambda (w) (= (window-point w) (point-max)))
                                   (get-buffer-window-list nil nil t))))
    (save-excursion
      (goto-char (point-max))
      (insert text))
    (when follow
      (goto-char (point-max)))
    (dolist (w windows)
      (set-window-point w (point-max)))))

(defun aned--end-turn (begin said status body)
  "The answer has ended; its turn begins at BEGIN.  SAID: it has text."
  (setq aned--answer nil)
  (force-mode-line-update)
  (if said
      (aned--append "\n\n## You\n\n")
    (delete-region begin (point-max)))
  (cond ((not (eql status 200)) (aned--tell status body))
        ((not said) (message "aned: the model said nothing: ask in other words"))))

(defun aned-send ()
  "Send this chat's conversation; the answer comes below it."
  (interactive)
  (unless (derived-mode-p 'aned-chat-mode)
    (user-error "This is no chat: open one with M-x aned-chat"))
  (when aned--answer
    (user-error "An answer is still coming: wait, or stop it with C-c C-k"))
  (let ((messages (aned--messages)) (buffer (current-buffer)) (said nil) (begin nil))
    (unless (equal (alist-get 'role (car (last messages))) "user")
      (user-error "Write your question below the last \"## You\" first"))
    (when (and (aned--set aned-system) (not (equal (alist-get 'role (car messages)) "system")))
      (push `((role . "system") (content . ,aned-system)) messages))
    (setq begin (copy-marker (point-max)))
    (aned--append "\n\n## Model\n\n")
    (setq aned--answer
          (aned--stream
           "/v1/chat/completions"
           `((messages . ,(vconcat messages))
             ,@(and aned-chat-max-tokens `((max_tokens . ,aned-chat-max-tokens))))
           (lambda (choice)
             (let* ((delta (gethash "delta" choice))
                    (text (and (hash-table-p delta) (gethash "content" delta))))
               (when (and (stringp text) (not (string-empty-p text)) (buffer-live-p buffer))
                 (setq said t)
                 (with-current-buffer buffer
                   (aned--append text)))))
           (lambda (status body)
             (when (buffer-live-p buffer)
               (with-current-buffer buffer
                 (aned--end-turn begin said status body))))))))

(defun aned-stop ()
  "Stop the answer that is coming; what came of it stays."
  (interactive)
  (if (not aned--answer)
      (message "aned: nothing is coming")
    (aned-stop-call aned--answer)
    (setq aned--answer nil)
    (aned--append "\n\n## You\n\n")))

;;; Completion

(defface aned-ghost '((t :inherit shadow))
  "Text that a completion would add.")

(defvar aned--ghost nil "The overlay that shows a completion.")
(defvar aned--asked nil "The call that a completion comes from.")
(defvar aned--unmap nil "Ends the keys of the completion that is shown; nil: they have ended.")
(defvar aned--no-suffix nil "Sockets and models that refused a suffix.")

(defvar aned-ghost-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "TAB") #'aned-accept)
    (define-key map (kbd "<tab>") #'aned-accept)
    map)
  "Keys while a completion is shown.")

(defun aned-ghost-text ()
  "The completion that is shown, or nil."
  (and aned--ghost (overlay-get aned--ghost 'aned-text)))

(defun aned-dismiss ()
  "Show no completion, and stop asking for one."
  (interactive)
  (let ((asked aned--asked) (ghost aned--ghost) (unmap aned--unmap))
    (setq aned--asked nil aned--ghost nil aned--unmap nil)
    (when asked
      (aned-stop-call asked))
    (when ghost
      (delete-overlay ghost))
    (when unmap
      (funcall unmap))))

(defun aned-accept ()
  "Put the completion that is shown into the buffer."
  (interactive)
  (let ((text (aned-ghost-text))
        (at (and aned--ghost (overlay-start aned--ghost))))
    (if (not text)
        (user-error "No completion is shown: ask for one with M-x aned-complete")
      (aned-dismiss)
      (goto-char at)
      (insert text))))

(defun aned--show (text)
  "Add TEXT to the completion that is shown."
  (let* ((all (concat (overlay-get aned--ghost 'aned-all) text))
         (shown (propertize all 'face 'aned-ghost)))
    (overlay-put aned--ghost 'aned-all all)
    (unless (string-blank-p all)
      (put-text-property 0 1 'cursor t shown)
      (unless (aned-ghost-text)
        (setq aned--unmap (set-transient-map aned-ghost-map #'aned--keep-ghost #'aned-dismiss)))
      (overlay-put aned--ghost 'aned-text all)
      (overlay-put aned--ghost 'after-string shown))))

(defun aned--keep-ghost ()
  "Does the command that comes leave the completion where it is?"
  (memq this-command '(aned-accept aned-complete ignore)))

(defun aned--refuses-suffix (status body)
  "Does an answer, STATUS and BODY, say that there is no suffix?"
  (let ((e (and (eql status 400) (aned--error-of body))))
    (or (equal (alist-get 'param e) "suffix")
        (string-prefix-p "suffix" (or (alist-get 'message e) "")))))

(defun aned--complete (prefix suffix)
  "Ask how PREFIX goes on, before SUFFIX where the model can; show it."
  (let* ((ghost aned--ghost)
         (where (list (aned-socket-path) aned-model))
         (fill (and (not (string-blank-p suffix)) (not (member where aned--no-suffix)))))
    (setq aned--asked
          (aned--stream
           "/v1/completions"
           `((prompt . ,prefix) (max_tokens . ,aned-completion-max-tokens) (temperature . 0)
             ,@(and fill `((suffix . ,suffix))))
           (lambda (choice)
             (when (and (eq ghost aned--ghost) (overlay-buffer ghost) (stringp (gethash "text" choice)))
               (aned--show (gethash "text" choice))))
           (lambda (status body)
             (when (eq ghost aned--ghost)
               (setq aned--asked nil)
               (cond ((and fill (aned--refuses-suffix status body))
                      (push where aned--no-suffix)
                      (aned--complete prefix suffix))
                     ((not (eql status 200))
                      (aned-dismiss)
                      (aned--tell status body))
                     ((not (aned-ghost-text))
                      (aned-dismiss)
                      (message "aned: the model adds nothing here")))))))))

;;;###autoload
(defun aned-complete ()
  "Show how the text before point might go on; TAB takes it over."
  (interactive)
  (aned-dismiss)
  (let ((prefix (buffer-substring-no-properties (max (point-min) (- (point) aned-prefix-chars)) (point)))
        (suffix (buffer-substring-no-properties (point) (min (point-max) (+ (point) aned-suffix-chars)))))
    (when (string-blank-p prefix)
      (user-error "There is nothing before point to go on from: write a line first"))
    (setq aned--ghost (make-overlay (point) (point)))
    (aned--complete prefix suffix)))

(provide 'aned)
;;; aned.el ends here
